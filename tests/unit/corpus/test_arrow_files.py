"""Arrow IPC files and streams, and guessed columns of tables."""

import json

import pytest

from mvindex.corpus import CorpusOptions, Row, open_corpus, read_documents
from mvindex.errors import CorpusError
from mvindex.records import Document

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")

COLUMNS = {"docid": ["a", "b"], "passage": ["x y", "z"], "year": [1963, None], "vector": [[0.5], [0.25]]}
FOUND = [Document("a", "x y", "", {"year": 1963}), Document("b", "z", "", {"year": None})]


def save(path, table, kind):
    if kind == "feather":
        feather.write_feather(table, str(path))
        return str(path)
    writer = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, writer(sink, table.schema) as file:
        file.write_table(table, max_chunksize=1)
    return str(path)


@pytest.mark.parametrize(("kind", "name"), [("file", "t.arrow"), ("stream", "t.arrow"), ("feather", "t.feather")])
@pytest.mark.parametrize("is_named", [True, False])
def test_rows_become_documents(tmp_path, kind, name, is_named):
    path = save(tmp_path / (name if is_named else "data"), pa.table(COLUMNS), kind)
    with open_corpus(path) as corpus:
        rows = list(corpus)
        source = corpus.source
        assert corpus.bytes_read <= corpus.bytes_total
    assert [row.document for row in rows] == FOUND
    assert [row.location.line for row in rows] == [1, 2]
    assert str(source).endswith(
        "arrow (detected): id = docid, text = passage, title = (none), metadata = year, left out = vector"
    )


def test_a_table_without_ids_gets_them_from_file_and_row(tmp_path):
    path = save(tmp_path / "t.arrow", pa.table({"remark": ["It rains.", "It rains."], "n": [1, 2]}), "file")
    assert list(read_documents(path)) == [
        Document(
            f"{path}#row-{row}",
            f"remark: It rains.; n: {row}",
            "",
            {"remark": "It rains.", "n": row, "file": path, "line": row},
        )
        for row in (1, 2)
    ]


def test_a_batch_of_many_rows_is_read_in_parts(tmp_path):
    table = pa.table({"id": list(map(str, range(5000))), "text": ["é"] * 5000})
    path = save(tmp_path / "t.feather", table, "feather")
    assert [one.id for one in read_documents(path)] == list(map(str, range(5000)))


def test_bad_rows_are_json_lines(tmp_path):
    path = save(tmp_path / "t.arrow", pa.table({"id": ["a", None], "text": ["x", "y"]}), "stream")
    with open_corpus(path) as corpus:
        good, bad = corpus
        assert isinstance(good, Row) and corpus.source.rejects_format == "jsonl"
    assert bad.reason == '"id" is null; expected a string or an integer'
    assert json.loads(b"".join(bad.raw)) == {"id": None, "text": "y"}


@pytest.mark.parametrize("kind", ["file", "stream", "feather"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.98])
def test_a_file_cut_short_is_told(tmp_path, kind, share):
    path = save(tmp_path / "t.arrow", pa.table({"id": ["a"] * 500, "text": [f"text {n}" for n in range(500)]}), kind)
    content = (tmp_path / "t.arrow").read_bytes()
    (tmp_path / "cut.arrow").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CorpusError, match=r"cut\.arrow: is (not a whole Arrow file|damaged after row \d+)"):
        list(read_documents(str(tmp_path / "cut.arrow")))
    assert path


def test_text_in_an_arrow_file_is_told(tmp_path):
    (tmp_path / "t.feather").write_text("id,text\n1,a\n")
    with pytest.raises(CorpusError, match=r"t\.feather: is not a whole Arrow file"):
        list(read_documents(str(tmp_path / "t.feather")))


def test_other_columns_may_be_named(tmp_path):
    path = save(tmp_path / "t.arrow", pa.table(COLUMNS), "file")
    found = list(read_documents(path, CorpusOptions(id_field="", text_field="passage,docid")))
    assert [one.text for one in found] == ["x y\n\na", "z\n\nb"]
    with pytest.raises(CorpusError, match='column "year" holds int64; expected strings'):
        list(read_documents(path, CorpusOptions(text_field="passage,year")))
