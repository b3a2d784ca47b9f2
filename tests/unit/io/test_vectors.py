"""Vectors that others wrote: Parquet in its shapes, NumPy with ids, JSON Lines; and what is wrong with some of them."""

import gc
import gzip
import json
import tracemalloc

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, CorpusError
from mvindex.index import store_of
from mvindex.io.import_ import Target, import_vectors
from mvindex.io.parquet_rows import open_parquet
from mvindex.io.staging import Columns, Texts

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def held(folder, files, **options):
    """Import the files; return (document, its views, their spans) in order, and the report."""
    target = Target(path=str(folder / "out.mvx"), **options.pop("target", {}))
    report = import_vectors([str(folder / name) for name in files], target, **options)
    with mvindex.open(folder / "out.mvx") as index:
        rows = []
        for batch in store_of(index).batches(1024):
            starts = batch.views.starts
            for number, document in enumerate(batch.documents):
                own = slice(starts[number], starts[number + 1])
                rows.append((document, batch.views.rows[own].tolist(), batch.views.spans[own].tolist()))
        assert [batch.ordinals.tolist() for batch in store_of(index).batches(1024)] == [list(range(len(rows)))]
    return rows, report


def refused(folder, files, message, **options):
    with pytest.raises((CorpusError, ConfigError), match=message):
        held(folder, files, **options)
    assert not [path.name for path in folder.iterdir() if "out" in path.name]


def table(folder, name="in.parquet", **columns):
    parquet.write_table(arrow.table(columns), folder / name, row_group_size=3)


def lists(rows, kind=None):
    return arrow.array(rows, type=arrow.list_(kind or arrow.float32()))


def doc(doc_id, text="", title="", **metadata):
    return mvindex.Document(doc_id, text, title, metadata)


NONE = [-1, -1]


def test_parquet_with_a_row_a_view(tmp_path):
    table(
        tmp_path,
        doc_id=["a", "a", "b", "c", "c", "c"],
        view=arrow.array([0, 1, 0, 0, 1, 2], type=arrow.int8()),
        vector=arrow.array([[n, 1.5] for n in range(6)], type=arrow.list_(arrow.float16(), 2)),
        text=["one two", None, "three", "four", "four", None],
        title=["A", "A", None, "", None, None],
        metadata=['{"x": [1, null]}', None, "", "{}", None, None],
        span_begin=[0, 4, None, None, None, None],
        span_end=[3, 7, None, None, None, None],
        year=[1970, 1970, None, 3, None, None],
    )
    rows, report = held(tmp_path, ["in.parquet"])
    assert rows == [
        (doc("a", "one two", "A", x=[1, None], year=1970), [[0, 1.5], [1, 1.5]], [[0, 3], [4, 7]]),
        (doc("b", "three"), [[2, 1.5]], [NONE]),
        (doc("c", "four", year=3), [[3, 1.5], [4, 1.5], [5, 1.5]], [NONE] * 3),
    ]
    assert (report.dtype, report.dim, report.documents, report.views) == ("fp16", 2, 3, 6)


@pytest.mark.parametrize("is_fixed", [True, False])
def test_parquet_with_a_row_a_document(tmp_path, is_fixed):
    inner = arrow.list_(arrow.float64(), 2) if is_fixed else arrow.list_(arrow.float64())
    table(
        tmp_path,
        _id=[10, 11],
        embeddings=arrow.array([[[1, 2], [3, 4]], [[5, 6]]], type=arrow.list_(inner)),
        text=["x", "y"],
        made=arrow.array([1, 2], type=arrow.timestamp("s")),
        tags=arrow.array([["p"], []]),
    )
    rows, report = held(tmp_path, ["in.parquet"])
    assert rows == [
        (doc("10", "x", tags=["p"]), [[1, 2], [3, 4]], [NONE] * 2),
        (doc("11", "y", tags=[]), [[5, 6]], [NONE]),
    ]
    assert report.as_row()["left_out"] == ["made"]
    assert report.dtype == "fp32"


def test_columns_of_other_names_are_named_by_options(tmp_path):
    table(tmp_path, key=["a"], emb=lists([[1, 2]]), body=["x"], head=["T"], id=[7])
    columns = Columns(id="key", vector="emb", text="body", title="head")
    assert held(tmp_path, ["in.parquet"], columns=columns)[0] == [(doc("a", "x", "T", id=7), [[1, 2]], [NONE])]


def test_several_parquet_files_are_one_after_the_other_and_a_document_may_go_on_in_the_next(tmp_path):
    table(tmp_path, "1.parquet", id=["a", "b"], vector=lists([[1, 2], [3, 4]]))
    table(tmp_path, "2.parquet", id=["b", "c"], vector=lists([[5, 6], [7, 8]]))
    rows, _ = held(tmp_path, ["*.parquet"])
    assert [(row[0].id, row[1]) for row in rows] == [("a", [[1, 2]]), ("b", [[3, 4], [5, 6]]), ("c", [[7, 8]])]


def test_names_in_a_dictionary_are_strings(tmp_path):
    table(tmp_path, id=arrow.array(["a", "a", "b"]).dictionary_encode(), vector=lists([[1, 2], [3, 4], [5, 6]]))
    assert [row[0].id for row in held(tmp_path, ["in.parquet"])[0]] == ["a", "b"]


SPANNED = {"id": ["a", "b"], "vector": lists([[1], [2]]), "text": ["xyz", "xyz"]}
LISTED = {
    "id": ["a", "b"],
    "vectors": arrow.array([[[1], [2]], [[3]]], type=arrow.list_(arrow.list_(arrow.float32()))),
    "text": ["xyz", "xyz"],
}


@pytest.mark.parametrize("kind", [arrow.uint8(), arrow.uint64(), arrow.int16(), arrow.float32(), arrow.float64()])
def test_spans_are_whole_numbers_of_any_type(tmp_path, kind):
    begins, ends = (arrow.array(values, type=kind) for values in ([0, None], [3, None]))
    table(tmp_path, **SPANNED, span_begin=begins, span_end=ends)
    assert [row[2] for row in held(tmp_path, ["in.parquet"])[0]] == [[[0, 3]], [NONE]]


def test_a_column_of_spans_that_is_null_stands_for_none(tmp_path):
    table(tmp_path, **SPANNED, span_begin=arrow.nulls(2), span_end=arrow.nulls(2))
    assert [row[2] for row in held(tmp_path, ["in.parquet"])[0]] == [[NONE], [NONE]]


def test_a_list_of_spans_that_is_null_stands_for_none(tmp_path):
    begins, ends = (arrow.array(values, arrow.list_(arrow.int32())) for values in ([None, [1]], [None, [2]]))
    table(tmp_path, **LISTED, span_begins=begins, span_ends=ends)
    assert [row[2] for row in held(tmp_path, ["in.parquet"])[0]] == [[NONE, NONE], [[1, 2]]]


@pytest.mark.parametrize("kind", [arrow.large_string(), getattr(arrow, "string_view", arrow.string)()])
def test_strings_may_be_large_or_views(tmp_path, kind):
    columns = {"id": ["a", "a", "b"], "text": ["x", None, "y"], "tag": ["t", None, "u"]}
    made = {name: arrow.array(values, type=kind) for name, values in columns.items()}
    table(tmp_path, **made, vector=lists([[1], [2], [3]]))
    assert [row[0] for row in held(tmp_path, ["in.parquet"])[0]] == [doc("a", "x", tag="t"), doc("b", "y", tag="u")]


def test_a_column_that_later_rows_leave_out_may_be_left_out_anywhere(tmp_path):
    """2,048 rows are read at once."""
    count = 2500
    rest = [None] * (count - 1)
    table(tmp_path, id=["a"] * count, vector=lists([[1.0]] * count), year=[1] * count, tag=["x", *rest])
    assert held(tmp_path, ["in.parquet"])[0][0][0] == doc("a", year=1, tag="x")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"id": ["a"], "text": ["x"]},
            r"no column 'vector or vectors or embedding or embeddings'; the columns here are",
        ),
        ({"vector": lists([[1]])}, r"no column 'doc_id or id or _id or document_id'; .*--id-column"),
        ({"id": ["a"], "doc_id": ["b"], "vector": lists([[1]])}, "columns doc_id and id both match"),
        ({"id": ["a"], "vector": [[1, 2]]}, "column 'vector': expected a list of float16.*got list"),
        ({"id": [1.5], "vector": lists([[1]])}, "column 'id': expected strings or integers, got double"),
        (
            {"id": ["a", "b"], "vector": lists([[1, 2], [3]])},
            r"in.parquet:2: expected vectors of 2 dims, as before, got 1",
        ),
        ({"id": ["a", "b"], "vector": lists([[1, 2], None])}, r"in.parquet:2: 'vector' is null"),
        ({"id": ["a", None], "vector": lists([[1, 2], [3, 4]])}, r"in.parquet:2: 'id' is null"),
        ({"id": ["a"], "vector": lists([[1, None]])}, "a number of a vector is null"),
        ({"id": ["a", "b", "a"], "vector": lists([[1], [2], [3]])}, r"in.parquet:3: id 'a' occurs at .*in.parquet:1"),
        ({"id": ["a", "a"], "view": [1, 0], "vector": lists([[1], [2]])}, "expected view 0 of the document, got 1"),
        (
            {"id": ["a", "a"], "view": [0, 2], "vector": lists([[1], [2]])},
            r"in.parquet:2: expected view 1 of the document, got 2",
        ),
        (
            {"id": ["a"], "vector": lists([[1]]), "metadata": ["[1]"]},
            r"in.parquet:1: the row is an array; expected an object",
        ),
        (
            {"id": ["a"], "vector": lists([[1]]), "metadata": ['{"y":1}'], "y": [2]},
            '"y" occurs both beside "metadata" and in it',
        ),
        ({"id": ["a"], "vector": lists([[1]]), "text": ["abc"], "span_begin": [1], "span_end": [4]}, "its text has 3"),
        (
            {"id": ["a"], "vector": lists([[1]]), "text": ["abc"], "span_begin": [2], "span_end": [1]},
            "2 to 1; its text",
        ),
        ({"id": [""], "vector": lists([[1]])}, r"in.parquet:1: id is ''"),
        (
            {"id": ["a"], "vectors": arrow.array([[]], type=arrow.list_(arrow.list_(arrow.float32(), 2)))},
            "expected a vector for each document, got none",
        ),
        ({"id": ["a"], "vector": lists([[]])}, "expected vectors of 1 to 65536 dims, got 0"),
        ({"id": arrow.array([], arrow.string()), "vector": lists([])}, "holds no rows"),
        ({"id": ["a"], "vector": lists([[1]]), "text": [5]}, r"in.parquet:1: text: expected a string, got int 5"),
        ({"id": ["a"], "vector": lists([[1]]), "text": [0]}, r"in.parquet:1: text: expected a string, got int 0"),
        (
            SPANNED | {"span_begin": [0.0, 0.5], "span_end": [1.0, 1.0]},
            r"in.parquet:2: 'span_begin': expected an integer, got 0.5",
        ),
        (SPANNED | {"span_begin": ["0", "0"], "span_end": ["1", "1"]}, "'span_begin': expected integers, got string"),
        (SPANNED | {"span_begin": [[0], [0]], "span_end": [[1], [1]]}, "'span_begin': expected integers, got list<"),
        (
            LISTED | {"span_begins": [[0], [0, 1]], "span_ends": [[1], [1, 2]]},
            r":1: 'span_begins': expected 2 numbers, .* got 1",
        ),
        (
            LISTED | {"span_begins": [[0, 0], [0.5]], "span_ends": [[1, 1], [1]]},
            r"in.parquet:2: 'span_begins': expected an integer",
        ),
        (LISTED | {"span_begins": [0, 1], "span_ends": [1, 2]}, "expected a list of integers for each"),
    ],
)
def test_bad_parquet_is_refused_with_its_row_and_leaves_nothing(tmp_path, columns, message):
    table(tmp_path, **columns)
    refused(tmp_path, ["in.parquet"], message)


def test_rows_of_one_document_that_say_different_texts_are_refused(tmp_path):
    """2,048 rows are read at once: the second time the first row stands in an earlier part."""
    for count, columns, message in [
        (3, {"text": ["x", None, "other"]}, r"in.parquet:3: 'text' differs from the rows above"),
        (2, {"text": [None, "late"]}, r"in.parquet:2: 'text' differs"),
        (2, {"year": [1, 2]}, r"in.parquet:2: 'year' differs"),
        (3, {"tags": [["x"], None, ["y"]]}, r"in.parquet:3: 'tags' differs"),
        (2, {"metadata": [{"k": 1}, {"k": 2}]}, r"in.parquet:2: 'metadata' differs"),
        (2500, {"text": ["x"] * 2048 + ["other"] * 452}, r"in.parquet:2049: 'text' differs"),
        (2500, {"year": [1] * 2048 + [2] * 452}, r"in.parquet:2049: the metadata differ"),
    ]:
        table(tmp_path, id=["a"] * count, vector=lists([[1.0]] * count), **columns)
        refused(tmp_path, ["in.parquet"], message)


@pytest.mark.parametrize("count", [20, 700])
def test_nested_dictionaries_are_decoded_a_few_rows_at_once(tmp_path, count):
    tags = arrow.DictionaryArray.from_arrays(np.zeros(192 * count, np.int32), ["x" * 100_000])
    tags = arrow.ListArray.from_arrays(np.arange(0, 192 * count + 1, count, dtype=np.int32), tags)
    ids = [str(number) for number in range(192)]
    parquet.write_table(
        arrow.table({"id": ids, "vector": lists([[1.0]] * 192), "tags": tags}), tmp_path / "in.parquet", version="2.6"
    )
    if count == 700:
        return refused(
            tmp_path, ["in.parquet"], r"in\.parquet:1: expected lists and objects of at most 67,108,864 bytes"
        )
    source = open_parquet([str(tmp_path / "in.parquet")], Columns(), is_export=False)
    tracemalloc.start()
    assert [len(one.document.metadata["tags"]) for one in source.documents] == [count] * 192
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()
    return None


def test_damaged_parquet_is_refused(tmp_path):
    table(tmp_path, id=["a"], vector=lists([[1]]))
    whole = (tmp_path / "in.parquet").read_bytes()
    (tmp_path / "in.parquet").write_bytes(whole[:-20])
    refused(tmp_path, ["in.parquet"], "in.parquet: is not a whole Parquet file")


@pytest.mark.parametrize("form", ["txt", "npy", "json"])
def test_a_numpy_file_with_ids(tmp_path, form):
    vectors = np.arange(12, dtype="<f2").reshape(3, 2, 2)
    np.save(tmp_path / "in.npy", vectors)
    ids = ["b ü", "a", "c"]
    path = tmp_path / f"ids.{form}"
    if form == "npy":
        np.save(path, np.array(ids))
    else:
        path.write_text(json.dumps(ids) if form == "json" else "b ü\r\na\nc\n", encoding="utf-8")
    rows, report = held(tmp_path, ["in.npy"], ids=str(path))
    assert rows == [(doc(doc_id), vectors[n].tolist(), [NONE] * 2) for n, doc_id in enumerate(ids)]
    assert report.dtype == "fp16"


def test_a_numpy_file_whose_ids_come_several_times_and_texts_from_a_corpus(tmp_path):
    np.save(tmp_path / "in.npy", np.arange(10, dtype="f4").reshape(5, 2))
    (tmp_path / "ids.txt").write_text("a\nb\na\nc\nb\n")
    (tmp_path / "corpus.jsonl").write_text("".join(f'{{"id": "{n}", "text": "text {n}"}}\n' for n in "cba"))
    texts = Texts(files=[str(tmp_path / "corpus.jsonl")])
    rows, _ = held(tmp_path, ["in.npy"], ids=str(tmp_path / "ids.txt"), texts=texts)
    assert rows == [
        (doc("c", "text c"), [[6, 7]], [NONE]),
        (doc("b", "text b"), [[2, 3], [8, 9]], [NONE] * 2),
        (doc("a", "text a"), [[0, 1], [4, 5]], [NONE] * 2),
    ]


def test_numpy_files_that_are_none_or_do_not_fit_are_refused(tmp_path):
    ids = tmp_path / "ids.txt"
    ids.write_text("a\nb\n")
    good = np.zeros((2, 2), dtype="f4")

    class Marks:
        def __reduce__(self):
            return open, (str(tmp_path / "marker"), "w")

    for array, message in [
        (np.zeros((3, 2), "f4"), r"ids.txt: expected 3 ids, one for each of .*in.npy, got 2"),
        (np.zeros((2, 2), "i4"), r"in.npy: expected float16, .* got int32 of \(2, 2\)"),
        (np.zeros(2, "f4"), r"in.npy: expected float16, .* got float32 of \(2,\)"),
        (np.asfortranarray(np.ones((2, 3), "f4")), "is in Fortran order"),
        (
            np.array([[Marks(), 1]], dtype=object),
            "is not a whole .npy file of plain numbers: .*Python objects in dtype",
        ),
    ]:
        np.save(tmp_path / "in.npy", array)
        refused(tmp_path, ["in.npy"], message, ids=str(ids))
    assert not (tmp_path / "marker").exists()
    np.save(tmp_path / "in.npy", good)
    refused(tmp_path, ["in.npy"], "has vectors and no ids; give --ids FILE")
    (tmp_path / "in.npy").write_bytes((tmp_path / "in.npy").read_bytes()[:-4])
    refused(tmp_path, ["in.npy"], "is not a whole .npy file", ids=str(ids))
    np.savez(tmp_path / "in.npz", good)
    refused(tmp_path, ["in.npz"], r"is an archive of arrays", ids=str(ids))
    (tmp_path / "in.npz").write_bytes(b"PK\x03\x04 and no archive")
    refused(tmp_path, ["in.npz"], r"is an archive of arrays", ids=str(ids))
    np.save(tmp_path / "in.npy", good)
    np.save(tmp_path / "ids.npy", np.array(["a", None], dtype=object))
    refused(tmp_path, ["in.npy"], "ids.npy: is not a whole .npy file of plain numbers", ids=str(tmp_path / "ids.npy"))
    (tmp_path / "ids.json").write_text('{"a": 1}')
    refused(tmp_path, ["in.npy"], "ids.json: expected a list of ids, got dict", ids=str(tmp_path / "ids.json"))


def header(text):
    """A .npy file of a header and little else."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + b"\0" * 64


@pytest.mark.parametrize(
    "data",
    [
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (1180591620717411303424, 4)}\n"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}\n"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (True, 4)}\n"),
        header("(" * 9000),
        header("-" * 9000 + "1"),
        header("{'descr': '''\n"),
        b"\x93NUMPY",
    ],
)
def test_numpy_files_that_lie_are_refused(tmp_path, data):
    (tmp_path / "ids.txt").write_text("a\n")
    (tmp_path / "in.npy").write_bytes(data)
    refused(tmp_path, ["in.npy"], "in.npy: is not a whole .npy file of plain numbers: ", ids=str(tmp_path / "ids.txt"))


def test_ids_that_no_document_may_have_are_refused_with_their_row(tmp_path):
    np.save(tmp_path / "in.npy", np.eye(3, dtype="f4"))
    np.save(tmp_path / "half.npy", np.array([65, 0xD800, 66], dtype="<u4").view("<U1"))
    np.save(tmp_path / "none.npy", np.array([65, 66, 0xFFFFFFFF], dtype="<u4").view("<U1"))
    np.save(tmp_path / "odd.npy", np.array([65, 66, 0x7FFFFFFF], dtype="<u4").view("<U1"))
    (tmp_path / "half.json").write_text(r'["a", "\ud800", "c"]')
    (tmp_path / "nul.json").write_text(r'["a", "b", "x\u0000"]')
    (tmp_path / "tab.txt").write_text("a\nb\tc\nd\n")
    for name, message in {
        "half.npy": "half.npy:2: id holds a lone surrogate",
        "none.npy": "none.npy: after id 0: invalid text",
        "odd.npy": "odd.npy: after id 0: invalid text",
        "half.json": "half.json:2: id holds a lone surrogate",
        "nul.json": "nul.json:3: id holds a NUL",
        "tab.txt": r"tab.txt:2: id 'b\\tc' holds a control character",
    }.items():
        refused(tmp_path, ["in.npy"], message, ids=str(tmp_path / name))
    refused(tmp_path, ["in.npy"], "--ids -: the ids are read from a file", ids="-")


def test_bad_vectors_leave_no_complaint_of_the_temporary_database(tmp_path):
    """Its rows are then not read to their end, and pytest makes an error of what cannot be raised."""
    np.save(tmp_path / "in.npy", np.full((3, 2), np.nan, dtype="f4"))
    (tmp_path / "ids.txt").write_text("a\nb\nc\n")
    refused(tmp_path, ["in.npy"], "document 'a': view 0 holds NaN", ids=str(tmp_path / "ids.txt"))
    gc.collect()


def test_a_field_of_texts_that_no_line_has_is_refused(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": "a", "vector": [1], "body": "x"}\n{"id": "b", "vector": [2]}\n')
    refused(tmp_path, ["in.jsonl"], "in.jsonl: no line has a field 'bdy'", columns=Columns(text="bdy"))
    rows, _ = held(tmp_path, ["in.jsonl"], columns=Columns(text="body"))
    assert [row[0] for row in rows] == [doc("a", "x"), doc("b")]


def test_json_lines_with_one_vector_or_several(tmp_path):
    lines = [
        {"id": "a", "text": "one two", "vectors": [[1, 2], [0.1, -3e-5]], "spans": [[0, 3], None], "year": 5},
        {"id": 7, "vectors": [3.0, 4.0], "title": "T", "metadata": {"x": None}},
    ]
    with gzip.open(tmp_path / "in.jsonl.gz", "wt", encoding="utf-8-sig") as file:
        file.write("\n".join(map(json.dumps, lines)) + "\n\n")
    rows, report = held(tmp_path, ["in.jsonl.gz"])
    small = np.array([0.1, -3e-5], dtype=np.float32).tolist()
    assert rows == [
        (doc("a", "one two", year=5), [[1, 2], small], [[0, 3], NONE]),
        (doc("7", "", "T", x=None), [[3, 4]], [NONE]),
    ]
    assert report.dtype == "fp32"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "a"}', r"in.jsonl:1: no column 'vector or"),
        ('{"id": "a", "vector": []}', '"vector": expected a list of numbers'),
        ('{"id": "a", "vector": [[1, 2], [3]]}', '"vector": expected a list of numbers'),
        ('{"id": "a", "vector": ["1"]}', '"vector": expected a list of numbers'),
        ('{"id": "a", "vector": [true, null]}', '"vector": expected a list of numbers'),
        ('{"id": "a", "vector": [NaN]}', "NaN is not a JSON value"),
        ('{"id": "a", "vector": [1], "spans": [[0]]}', '"spans": expected'),
        ('{"id": "a", "vector": [1], "spans": [[0, 1], [0, 1]]}', r'"spans": expected .* for each of the 1 views'),
        ('{"id": "a", "vector": [1], "metadata": 5}', '"metadata" is no object'),
        ('{"id": {}, "vector": [1]}', "id: expected a string, got dict"),
        (
            '{"id": "a", "vector": [1]}\n{"id": "b", "vector": [1, 2]}',
            r"in.jsonl:2: expected vectors of 1 dims, as before, got 2",
        ),
        ('{"id": "a", "vector": [1]}\n{"id": "a", "vector": [1]}', r"in.jsonl:2: id 'a' occurs at .*in.jsonl:1"),
        ('{"id": "a", "vector": [1]}\n\x80', r"in.jsonl:2: .*"),
        ("[1]", "expected an object"),
        ("1\tA passage and no vectors.", r"in.jsonl:1: invalid JSON at character 2: .*; expected a JSON object"),
        ("", "holds no documents"),
    ],
)
def test_bad_json_lines_are_refused_with_their_line_and_leave_nothing(tmp_path, line, message):
    (tmp_path / "in.jsonl").write_text(line, encoding="latin-1")
    refused(tmp_path, ["in.jsonl"], message)


def test_files_that_do_not_go_together_are_refused(tmp_path):
    table(tmp_path, id=["a"], vector=lists([[1]]))
    (tmp_path / "in.jsonl").write_text('{"id": "b", "vector": [1]}')
    refused(tmp_path, ["in.parquet", "in.jsonl"], "the files are of several kinds")
    refused(tmp_path, ["in.parquet"], "--ids and --corpus go with a .npy file", ids="ids.txt")
    refused(tmp_path, ["none.parquet"], "none.parquet: no such file")
    (tmp_path / "in.pkl").write_bytes(b"\x80\x04]\x94.")
    refused(tmp_path, ["in.pkl"], "looks like a pickle; DPR's are read by `mvindex import dpr`")
    table(tmp_path, "2.parquet", id=["b"], vector=lists([[1]], arrow.float64()))
    refused(tmp_path, ["in.parquet", "2.parquet"], "vectors of another shape or type than those of")


def test_an_encoder_of_other_dims_is_refused_and_one_that_fits_takes_texts(tmp_path):
    (tmp_path / "in.jsonl").write_text(
        '{"id": "a", "text": "x", "vector": [1, 0]}\n{"id": "b", "text": "y", "vector": [0, 1]}'
    )
    flat = mvindex.CallableEncoder(lambda texts: np.array([[len(text), 1.0] for text in texts]), name="lengths")
    deep = mvindex.CallableEncoder(lambda texts: np.ones((len(texts), 3)), name="threes")
    refused(tmp_path, ["in.jsonl"], "makes vectors of 3 dims; expected 2, as in the files", target={"encoder": deep})
    held(tmp_path, ["in.jsonl"], target={"encoder": flat, "lexical": "unicode"})
    with mvindex.open(tmp_path / "out.mvx", encoder=flat) as index:
        assert index.search("a long question").hits[0].id == "a"
        assert index.search("y", mode="lexical").hits[0].id == "b"
        assert index.add([mvindex.Document("b", "y")]).unchanged == 1
