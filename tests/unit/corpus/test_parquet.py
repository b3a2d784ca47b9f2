"""Parquet: columns, types, damage, rejects."""

import datetime
import gzip
import io
import json
import re
import sys
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mvindex.corpus import CorpusOptions, Reject, RejectsWriter, Row, open_corpus, read_documents
from mvindex.corpus.tables import small_batches, table_rows
from mvindex.errors import CorpusError, ExtraMissing
from mvindex.plugins import install_command
from mvindex.records import Document

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def save(tmp_path, columns, **options):
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def documents(path, **options):
    return list(read_documents(path, CorpusOptions(**options)))


def test_columns_make_documents(tmp_path):
    path = save(tmp_path, {"id": ["a", "b"], "text": ["x", None], "title": [None, "T"], "year": [1963, None]})
    assert documents(path) == [Document("a", "x", "", {"year": 1963}), Document("b", "", "T", {"year": None})]


def test_integer_ids_and_repeated_strings_are_read(tmp_path):
    path = save(tmp_path, {"id": [1, 2], "text": pa.array(["x", "x"]).dictionary_encode()})
    assert documents(path) == [Document("1", "x"), Document("2", "x")]


def test_the_names_of_beir_are_found(tmp_path):
    assert documents(save(tmp_path, {"_id": ["d"], "title": ["T"], "text": ["x"]})) == [Document("d", "x", "T")]


def test_columns_may_be_named(tmp_path):
    path = save(tmp_path, {"pid": ["d"], "passage": ["x"], "title": ["T"]})
    assert documents(path, id_field="pid", text_field="passage", title_field="") == [
        Document("d", "x", "", {"title": "T"})
    ]


def test_a_struct_named_metadata_is_the_metadata(tmp_path):
    path = save(tmp_path, {"id": ["d"], "text": ["x"], "metadata": [{"year": 1963, "tags": ["a"]}], "url": ["u"]})
    assert documents(path) == [Document("d", "x", "", {"year": 1963, "tags": ["a"], "url": "u"})]


def test_columns_that_are_no_metadata_are_left_out_and_told(tmp_path):
    columns = {
        "id": ["d"],
        "text": ["x"],
        "day": [datetime.date(1963, 1, 1)],
        "blob": [b"\0"],
        "vector": [[0.5, 0.25]],
        "scores": [[1, 2]],
    }
    with open_corpus(save(tmp_path, columns)) as corpus:
        (row,) = corpus
        assert row.document == Document("d", "x", "", {"day": "1963-01-01", "scores": [1, 2]})
        assert corpus.source.format == "parquet"
        assert corpus.source.left_out == ("blob", "vector")
        assert corpus.source.metadata_columns == ("day", "scores")


def test_times_become_iso_texts_to_the_microsecond(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    utc = pyarrow.array([1_714_564_800_123_456_789, None], pyarrow.timestamp("ns", "UTC"))
    path = save(tmp_path, {"id": ["d", "e"], "text": ["x", "y"], "at": utc})
    assert [one.metadata["at"] for one in documents(path)] == ["2024-05-01T12:00:00.123456+00:00", None]


# 10000-01-01, by `date -d 9999-12-31Z +%s` and a day.
LATE = (253402214400 + 86400) * 1_000_000


def test_nan_is_no_metadata(tmp_path):
    table = {"id": ["1", "2"], "text": ["a", "b"], "f": [float("nan"), 1.5], "g": pa.array([0.5, None], pa.float32())}
    found = [document.metadata for document in read_documents(save(tmp_path, table), CorpusOptions())]
    assert found == [{"f": None, "g": 0.5}, {"f": 1.5, "g": None}]


def test_a_year_that_python_has_not_stays_a_text(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path = save(tmp_path, {"id": ["d"], "text": ["x"], "at": pyarrow.array([LATE], pyarrow.timestamp("us"))})
    assert [one.metadata["at"] for one in documents(path)] == ["10000-01-01 00:00:00.000000"]


def test_rows_are_placed_by_their_number_and_kept_as_json(tmp_path):
    path = save(tmp_path, {"id": [f"d{number}" for number in range(3000)], "text": ["é"] * 3000})
    with open_corpus(path) as corpus:
        rows = list(corpus)
        assert corpus.bytes_read == corpus.bytes_total
    assert [row.location.line for row in rows] == list(range(1, 3001))
    assert json.loads(rows[2999].raw) == {"id": "d2999", "text": "é"}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"id": ["d"], "vector": [[0.5]]}, "expected a column of texts, got id, vector"),
        ({"id": [0.5], "text": ["x"]}, 'column "id" holds double; expected strings or integers'),
        ({"id": ["d"], "text": [7]}, 'column "text" holds int64; expected strings'),
        ({"id": ["d"], "text": [b"x"]}, 'column "text" holds binary; expected strings'),
        ({"id": pa.array([], pa.string()), "text": pa.array([], pa.string())}, "has no documents"),
    ],
)
def test_a_table_of_the_wrong_columns_is_an_error(tmp_path, columns, told):
    with pytest.raises(CorpusError, match=told):
        documents(save(tmp_path, columns))


def test_bad_rows_are_rejected_alone_and_can_be_mended(tmp_path):
    path = save(tmp_path, {"id": ["a", None, "c", "d"], "text": ["x", "y", "", "z"], "year": [1, 2, 3, 4]})
    good, reasons = [], []
    with open_corpus(path) as corpus, RejectsWriter(tmp_path / "corpus") as writer:
        for row in corpus:
            if isinstance(row, Row):
                good.append(row.document.id)
            else:
                reasons.append((row.location.line, row.reason))
                writer.write(row, corpus.source)
    assert good == ["a", "d"]
    assert reasons[0] == (2, '"id" is null; expected a string or an integer')
    assert reasons[1][0] == 3 and "both empty" in reasons[1][1]
    ((rejects, file_format),) = writer.formats.items()
    assert (rejects.name, file_format) == ("corpus.rejects.jsonl", "jsonl")
    with open_corpus(str(rejects), CorpusOptions(format=file_format)) as corpus:
        assert [row.reason for row in corpus] == [reason for _, reason in reasons]
    rejects.write_text(rejects.read_text().replace("null", '"b"').replace('"text": ""', '"text": "new"'))
    assert documents(str(rejects)) == [Document("b", "y", "", {"year": 2}), Document("c", "new", "", {"year": 3})]


def test_invalid_utf8_is_a_bad_row_and_no_crash(tmp_path):
    stored = pa.array([b"good", b"caf\xe9", None], pa.binary())
    texts = pa.StringArray.from_buffers(3, stored.buffers()[1], stored.buffers()[2], stored.buffers()[0])
    path = save(tmp_path, {"id": ["a", "b", "c"], "text": texts, "title": ["T", "T", "T"]})
    with open_corpus(path) as corpus:
        first, second, third = corpus
    assert (first.document.text, third.document.title) == ("good", "T")
    assert "surrogate at position 3" in second.reason
    assert json.loads(b"".join(second.raw))["text"] == "caf\udce9"


def test_a_row_over_the_limit_is_rejected(tmp_path):
    path = save(tmp_path, {"id": ["a", "b"], "text": ["x" * 500, "y"]})
    with open_corpus(path, CorpusOptions(max_row_bytes=100)) as corpus:
        large, small = corpus
    assert isinstance(large, Reject) and "over 100 bytes" in large.reason
    assert small.document.id == "b"


@pytest.mark.parametrize("keep", [4, 100, -5])
def test_a_file_cut_short_is_told(tmp_path, keep):
    path = tmp_path / "cut.parquet"
    whole = save(tmp_path, {"id": ["a"], "text": ["x"]})
    with open(whole, "rb") as file:
        path.write_bytes(file.read()[:keep])
    with pytest.raises(CorpusError, match=r"cut\.parquet: is not a whole Parquet file"):
        documents(str(path))


def test_a_column_whose_name_is_no_text_is_told(tmp_path):
    """No schema of Arrow's is kept beside Parquet's own, which is then all that names the column."""
    whole = save(tmp_path, {"id": ["a"], "text": ["x"], "wxyz": ["y"]}, store_schema=False)
    with open(whole, "rb") as file:
        content = file.read()
    path = tmp_path / "named.parquet"
    path.write_bytes(content.replace(b"wxyz", b"\xff\xfeyz"))
    with pytest.raises(CorpusError, match=r"named\.parquet: is not a whole Parquet file"):
        documents(str(path))


def test_changed_bytes_are_told_with_the_rows_before_them(tmp_path):
    texts = [f"text number {number}" for number in range(20_000)]
    path = save(
        tmp_path,
        {"id": list(range(20_000)), "text": texts},
        row_group_size=5_000,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    with open(path, "r+b") as file:
        position = file.read().index(b"text number 12000")
        file.seek(position)
        file.write(b"XXXX")
    # Row 12,000 lies in the page of rows 10,000 to 15,000, which the 157th batch of 64 rows begins to read.
    with pytest.raises(CorpusError, match=r"corpus\.parquet: is damaged after row 9984: "):
        documents(path)


@pytest.mark.parametrize(("num_chars", "most_docs"), [(1_000_000, 68), (2_000_000, 0)])
def test_a_text_that_swells_in_its_rows_is_refused(tmp_path, num_chars, most_docs):
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000, pa.int32()), ["a " * (num_chars // 2)])
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 1_000
    (tmp_path / "z.md").write_text("It rose.")
    tracemalloc.start()
    begun = time.process_time()
    with open_corpus(tmp_path) as corpus:
        kinds = Counter(type(row).__name__ if isinstance(row, Reject) else row.document.text[:8] for row in corpus)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert kinds["a a a a "] <= most_docs and kinds["It rose."] == 1 and kinds["Reject"] < 50
    assert time.process_time() - begun < 2 and peak_bytes < 2**28


def test_a_million_rows_of_nothing_are_refused(tmp_path):
    pq.write_table(pa.table({"text": ["a b"] + [None] * 999_999}), tmp_path / "a.parquet", compression="zstd")
    with open_corpus(tmp_path) as corpus:
        *rows, last = corpus
    assert len(rows) < 200_000 and last.is_file
    assert "take over 67,108,864 bytes, 1,000 times the size of the file or more; the rest is left out" in last.reason


def test_arrow_rows_of_a_large_dictionary_are_read_a_few_at_once():
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), ["a" * 2**20])
    assert {part.num_rows for part in small_batches(pa.record_batch([texts], ["text"]))} <= set(range(1, 17))
    plain = pa.record_batch([pa.array(["a"] * 200)], ["text"])
    assert [part.num_rows for part in small_batches(plain)] == [64, 64, 64, 8]


def test_a_given_format_must_be_the_one_of_the_file(tmp_path):
    path = save(tmp_path, {"id": ["a"], "text": ["x"]})
    with pytest.raises(CorpusError, match="is of the format parquet, not jsonl"):
        documents(path, format="jsonl")
    text = tmp_path / "a.tsv"
    text.write_bytes(b"id\ttext\n1\ta\n")
    with pytest.raises(CorpusError, match="does not begin as a file of the format parquet"):
        documents(str(text), format="parquet")


def test_parquet_cannot_come_through_a_pipe_or_packed(tmp_path, monkeypatch):
    with open(save(tmp_path, {"id": ["a"], "text": ["x"]}), "rb") as file:
        content = file.read()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(CorpusError, match="cannot be read from a pipe"):
        documents("-")
    packed = tmp_path / "packed.parquet.gz"
    packed.write_bytes(gzip.compress(content))
    with pytest.raises(CorpusError, match="Parquet inside a compressed file"):
        documents(str(packed))


def test_an_id_that_begins_like_parquet_is_an_id(tmp_path):
    path = tmp_path / "genes.tsv"
    path.write_bytes(b"PAR1\tA protease-activated receptor.\n")
    assert documents(str(path)) == [Document("PAR1", "A protease-activated receptor.")]


def test_without_pyarrow_the_command_to_install_it_is_told(tmp_path, monkeypatch):
    path = save(tmp_path, {"id": ["a"], "text": ["x"]})
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ExtraMissing, match=re.escape(install_command("files"))):
        documents(path)


def _list_of(values, count):
    return pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), values)


@pytest.mark.parametrize("values_of", [lambda count: pa.nulls(count, pa.int32()), lambda count: pa.repeat(7, count)])
def test_a_list_of_millions_in_one_row_of_few_bytes_is_refused_unread(tmp_path, values_of):
    path = save(tmp_path, {"id": ["1"], "text": ["x"], "m": _list_of(values_of(30_000_000), 30_000_000)})
    assert Path(path).stat().st_size < 10_000
    with pytest.raises(CorpusError, match=r"corpus\.parquet: column 'm' unpacks to 1\d\d,\d{3},\d{3} bytes; expected"):
        documents(path)


def test_a_text_that_unpacks_to_a_thousand_times_the_file_is_refused_unread(tmp_path):
    path = save(tmp_path, {"id": ["1"], "text": ["a" * 80_000_000]}, use_dictionary=False, compression="zstd")
    with pytest.raises(CorpusError, match=r"corpus\.parquet: column 'text' unpacks to 80,\d{3},\d{3} bytes; expected"):
        documents(path)


def _first_of(values, count):
    """Return a dictionary of all values whose first is referred to so many times."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(sum(values, [])))


def test_a_column_with_a_dot_in_its_name_is_limited_too(tmp_path):
    path = save(tmp_path, {"id": ["1"], "text": ["x"], "a.b": _list_of(pa.nulls(30_000_000, pa.int32()), 30_000_000)})
    with pytest.raises(CorpusError, match=r"corpus\.parquet: column 'a\.b' unpacks to 1\d\d,\d{3},\d{3} bytes"):
        documents(path)


@pytest.mark.parametrize("kind", ["list", "string"])
def test_an_arrow_file_whose_offsets_fall_is_damaged(tmp_path, kind):
    offsets = pa.py_buffer(np.tile(np.array([0, 2_000], np.int32), 501))
    if kind == "list":
        inner = pa.Array.from_buffers(
            pa.list_(pa.int8()), 1_000, [None, offsets], children=[pa.nulls(2_000, pa.int8())]
        )
        column = _list_of(inner, 1_000)
    else:
        column = pa.Array.from_buffers(pa.string(), 1_000, [None, offsets, pa.py_buffer(b"a" * 2_000)])
    count = len(column)
    batch = pa.record_batch([list(map(str, range(count))), ["x"] * count, column], ["id", "text", "m"])
    with pa.ipc.new_file(tmp_path / "a.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(CorpusError, match=r"a\.arrow: is damaged after row 0: "):
        documents(str(tmp_path / "a.arrow"))


def _views_of_one_text(count):
    """Return so many string views of one text of a megabyte."""
    view = np.array([2**20, int.from_bytes(b"aaaa", "little"), 0, 0], np.int32)
    buffers = [None, pa.py_buffer(np.tile(view, count)), pa.py_buffer(b"a" * 2**20)]
    return pa.Array.from_buffers(pa.string_view(), count, buffers)


@pytest.mark.parametrize(
    "column",
    [
        pa.FixedSizeListArray.from_arrays(pa.nulls(2**31 - 1), 2**31 - 1),
        _list_of(pa.DictionaryArray.from_arrays(pa.array(np.zeros(3_000, np.int32)), pa.array(["x" * 10**6])), 3_000),
        _list_of(_first_of([["x" * 10**5], [""] * 100_000], 1_000), 1_000),
        _list_of(_first_of([[["x" * 10**5]], [[""]] * 100_000], 1_000), 1_000),
        _list_of(pa.StructArray.from_arrays([_views_of_one_text(3_000)], ["a"]), 3_000),
    ],
    ids=["nulls", "dictionary", "rare text", "list in a dictionary", "views"],
)
def test_an_arrow_row_of_few_bytes_that_swells_is_refused_unread(tmp_path, column):
    path, batch = tmp_path / "a.arrow", pa.record_batch([["1"], ["x"], column], ["id", "text", "m"])
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(CorpusError, match=r"a\.arrow:1: expected lists and objects of at most 67,108,864 bytes in a r"):
        documents(str(path))


@pytest.mark.parametrize("is_in_object", [False, True])
def test_a_list_that_repeats_a_long_text_of_the_dictionary_is_refused_unread(tmp_path, is_in_object):
    texts = pa.array(["y" * 10**6]).take(pa.array([0] * 200))
    values = pa.StructArray.from_arrays([texts], ["a"]) if is_in_object else texts
    columns = {"id": ["1"], "text": ["x"], "m": _list_of(values, 200)}
    path = save(tmp_path, columns, dictionary_pagesize_limit=2**24)
    pool, own_pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(own_pool)
    try:
        with pytest.raises(CorpusError, match=r"corpus\.parquet:1: expected lists and objects of at most 67,108,864 "):
            documents(path)
    finally:
        pa.set_memory_pool(pool)
    assert own_pool.max_memory() < 2**26


def _not_utf8():
    """Return three texts, of which the second is no UTF-8."""
    offsets = pa.py_buffer(np.array([0, 1, 3, 4], np.int32))
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"a\xff\xfeb")])


@pytest.mark.parametrize(
    ("column", "second"),
    [
        (pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), _not_utf8()), ["\udcff\udcfe", "b"]),
        (pa.FixedSizeListArray.from_arrays(_not_utf8().take(pa.array([0, 0, 1, 2])), 2), ["\udcff\udcfe", "b"]),
        (pa.StructArray.from_arrays([_not_utf8(), pa.nulls(3)], ["a", "b"])[:2], {"a": "\udcff\udcfe"}),
        (pa.array([[{"a": ["x"]}], [{"a": ["y"]}, None]]), [{"a": ["y"]}, None]),
    ],
    ids=["list", "fixed list", "object", "plain"],
)
def test_nested_texts_that_are_no_utf8_are_bad_rows_and_no_crash(tmp_path, column, second):
    batch = pa.record_batch([["1", "2"], ["x", "y"], column], ["id", "text", "m"])
    assert [row["m"] for row in table_rows(batch)][1] == second
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "a.parquet")
    with open_corpus(tmp_path) as corpus:
        first, last = corpus
    assert isinstance(first, Row)
    assert isinstance(last, Row) if "y" in str(second) else "surrogate" in last.reason


@pytest.mark.parametrize(
    "column",
    [
        pa.ListViewArray.from_arrays(
            pa.array([0] * 4, pa.int32()), pa.array([1_000] * 4, pa.int32()), pa.array(["x" * 20_000] * 1_000)
        ),
        pa.MapArray.from_arrays([0, 1_000], pa.array(["k"] * 1_000), pa.array(["x" * 20_000] * 1_000)),
    ],
    ids=["list_view", "map"],
)
def test_rows_of_maps_and_views_of_lists_are_read_by_what_they_take(column):
    parts = list(small_batches(pa.record_batch([column], ["m"])))
    assert [part.num_rows for part in parts] == [1] * len(column)
    long = pa.concat_arrays([column.slice(0, 1)] * 4)
    with pytest.raises(CorpusError, match=r"at most 67,108,864 bytes in a row, got 80,0"):
        list(small_batches(pa.record_batch([_list_of(long, 4)], ["m"])))
