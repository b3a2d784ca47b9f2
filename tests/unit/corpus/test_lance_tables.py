"""Tables of Lance, by folder and by address."""

import datetime
import shutil
import sys
from pathlib import Path

import pytest

from mvindex.corpus import CorpusOptions, Reject, open_corpus, read_documents
from mvindex.errors import CorpusError, ExtraMissing
from mvindex.plugins import install_command
from mvindex.records import Document
from tests.helpers.s3_server import s3_bucket

lance = pytest.importorskip("lance")
pyarrow = pytest.importorskip("pyarrow")

ROWS = {"docid": ["a", "b"], "passage": ["x y", "z"], "year": [1963, 1970]}
FOUND = [Document("a", "x y", "", {"year": 1963}), Document("b", "z", "", {"year": 1970})]


@pytest.fixture
def path(tmp_path):
    lance.write_dataset(pyarrow.table(ROWS), tmp_path / "corpus.lance")
    return str(tmp_path / "corpus.lance")


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}"])
def test_a_table_is_read(path, form):
    name = form.format(path)
    with open_corpus(name) as corpus:
        rows = list(corpus)
        assert corpus.bytes_total is None
        assert str(corpus.source).endswith(
            "lance (detected): id = docid, text = passage, title = (none), metadata = year"
        )
    assert [row.document for row in rows] == FOUND
    assert [str(row.location) for row in rows] == [f"{name}:1", f"{name}:2"]


def test_the_latest_version_is_read_in_order_without_what_was_deleted(path):
    table = lance.dataset(path)
    more = {"docid": [f"n{number}" for number in range(5000)], "passage": ["w"] * 5000, "year": [1] * 5000}
    lance.write_dataset(pyarrow.table(more), path, mode="append")
    lance.dataset(path).delete("docid = 'b'")
    assert [one.id for one in read_documents(path)] == ["a", *more["docid"]]
    assert table.version == 1 and table.count_rows() == 2


@pytest.mark.needs("s3")
def test_a_table_behind_an_address_is_read(path, monkeypatch):
    import fsspec

    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with s3_bucket() as bucket:
        fsspec.filesystem("s3").put(path, f"{bucket}/corpus.lance", recursive=True)
        assert list(read_documents(f"s3://{bucket}/corpus.lance")) == FOUND


def test_rows_are_checked_as_those_of_other_tables(tmp_path):
    path = tmp_path / "c.lance"
    when = [datetime.date(2020, 1, 2), None, None]
    lance.write_dataset(pyarrow.table({"id": ["a", "b", None], "text": ["x", None, "z"], "when": when}), path)
    with open_corpus(path, CorpusOptions()) as corpus:
        rows = list(corpus)
    assert rows[0].document == Document("a", "x", "", {"when": "2020-01-02"})
    assert [type(row) for row in rows[1:]] == [Reject, Reject] and str(rows[1].location) == f"{path}:2"
    with pytest.raises(CorpusError, match='no column "body"'):
        list(read_documents(path, CorpusOptions(text_field="body")))


def test_what_is_no_table_is_named(tmp_path):
    (tmp_path / "file.lance").write_text("x")
    (tmp_path / "folder.lance").mkdir()
    with pytest.raises(CorpusError, match=r"none\.lance: no such file"):
        list(read_documents(tmp_path / "none.lance"))
    for name in ("file", "folder"):
        path = tmp_path / f"{name}.lance"
        with pytest.raises(CorpusError, match=f"{path}: expected a table of Lance: ") as told:
            list(read_documents(path))
        assert ".rs" not in str(told.value) and "\n" not in str(told.value)
    empty = tmp_path / "empty.lance"
    lance.write_dataset(
        pyarrow.table({"id": [], "text": []}, pyarrow.schema({"id": "string", "text": "string"})), empty
    )
    with pytest.raises(CorpusError, match="has no documents"):
        list(read_documents(empty))


def test_a_table_that_is_damaged_is_named_with_the_row(path):
    folder = Path(path, "data")
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(CorpusError, match=f"{path}: cannot be read after row 0: "):
        list(read_documents(path))
    shutil.rmtree(folder)
    with pytest.raises(CorpusError, match=f"{path}: cannot be read after row 0: "):
        list(read_documents(path))


def test_a_table_named_twice_is_refused(path):
    with pytest.raises(CorpusError, match="named twice"):
        list(read_documents([path, path + "/"]))


def test_without_lance_the_way_to_get_it_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(ExtraMissing) as told:
        list(read_documents(path))
    assert install_command("lance") in str(told.value)
