"""Tables of pandas, Polars and Arrow: their rows are stored as the same rows given as dicts."""

import datetime
import decimal

import numpy as np
import pytest

from mvindex.errors import DocumentError
from mvindex.ingest.items import item_entries
from mvindex.records import dump_metadata

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")


def stored(items):
    """Each document as it is stored: id, text, title and metadata as JSON."""
    documents = [entry.document for entry in item_entries(items)]
    return [(one.id, one.text, one.title, dump_metadata(one.metadata, one.id)) for one in documents]


MIXED = [
    {
        "id": 1,
        "text": "One.",
        "metadata": {"lang": "en"},
        "code": 1,
        "tags": ["a", 1],
        "day": datetime.date(2024, 5, 1),
    },
    {"id": "two", "text": "Two.", "metadata": {"year": 2}, "code": "x", "tags": "a", "day": None},
    {"id": None, "text": "Three.", "metadata": {}, "code": {"deep": [None, {}]}, "tags": None, "is": True},
]
PLAIN = [
    {
        "id": "1",
        "text": "One.",
        "metadata": {"lang": "en"},
        "tags": ["a", "b"],
        "day": datetime.date(2024, 5, 1),
        "n": 1.5,
    },
    {"id": "2", "text": "Two.", "metadata": {"year": 2, "deep": [{"x": 1}, {"y": 2}]}, "tags": [], "n": None},
]


def test_rows_of_mixed_columns_are_stored_as_the_same_dicts():
    as_objects = {name: polars.Series([row.get(name) for row in MIXED], dtype=polars.Object) for name in MIXED[0]}
    expected = stored([{name: row.get(name) for name in MIXED[0]} for row in MIXED])
    assert [row[0] for row in expected[:2]] == ["1", "two"]
    assert expected[0][3] == '{"code":1,"day":"2024-05-01","lang":"en","tags":["a",1]}'
    assert stored(pandas.DataFrame(MIXED)[list(MIXED[0])]) == expected
    assert stored(polars.DataFrame(as_objects)) == expected


@pytest.mark.parametrize(
    "made",
    [pandas.DataFrame, polars.DataFrame, pyarrow.Table.from_pylist, lambda rows: pyarrow.table(polars.DataFrame(rows))],
)
def test_a_dict_in_a_column_has_its_own_keys_only(made):
    assert stored(made(PLAIN)) == stored(PLAIN)


def test_a_cell_without_a_value_is_no_metadata():
    missing = [None, float("nan"), np.float32("nan"), pandas.NaT, pandas.NA, np.datetime64("NaT")]
    frame = pandas.DataFrame(
        {"text": [f"Text {n}." for n in range(7)], "x": pandas.Series([*missing, 0], dtype=object)}
    )
    assert [row[3] for row in stored(frame)] == ["{}"] * 6 + ['{"x":0}']
    assert stored(frame.to_dict("records")) == stored(frame)


def test_scalars_of_numpy_in_dicts_are_numbers_texts_and_dates():
    row = {
        "id": np.int64(7),
        "text": np.str_("Text."),
        "a": np.float32(0.5),
        "b": np.bool_(False),
        "c": np.datetime64("2024-05-01T12:00:00.5"),
        "d": np.array([[1, 2], [3, 4]], dtype=np.uint8),
        "metadata": {"e": np.longdouble(2), "f": [np.int8(1)]},
    }
    metadata = '{"a":0.5,"b":false,"c":"2024-05-01T12:00:00.500000","d":[[1,2],[3,4]],"e":2.0,"f":[1]}'
    assert stored([row]) == [("7", "Text.", "", metadata)]


def test_an_index_with_a_name_is_a_column_and_one_without_is_not():
    frame = pandas.DataFrame({"text": ["One.", "Two."]}, index=pandas.Index(["a", "b"], name="id"))
    assert [row[0] for row in stored(frame)] == ["a", "b"]
    rest = pandas.DataFrame({"text": ["One.", "Two."], "n": [1, 2]})[1:]
    assert [row[3] for row in stored(rest)] == ['{"n":2}']


@pytest.mark.parametrize("column", [pandas.Series(["One."]), polars.Series(["One."]), np.array(["One."])])
def test_a_column_alone_is_a_list_of_texts(column):
    assert stored(column) == stored(["One."])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pandas.DataFrame({"text": ["a", "b"], "p": [1, decimal.Decimal("2")]}), "document 2: .*'p': .*got Decimal"),
        (pyarrow.table({"text": ["a"], "p": [datetime.time(1)]}), "document 1: .*'p': expected .*got time"),
        (polars.DataFrame({"text": ["a"], "p": [b"x"]}), "document 1: .*'p': expected .*got bytes b'x'"),
        (pandas.DataFrame({"text": ["a"], "m": [{"k": [float("inf")]}]}), "document 1: .*'m': 'k': .*finite.*got inf"),
        (pandas.DataFrame({"id": ["1", 2.5], "text": ["a", "b"]}), 'document 2: "id" is a number.*got 2.5'),
        (
            pandas.DataFrame({"id": ["1", 10**5000], "text": ["a", "b"]}),
            'document 2: "id" is a number.*that cannot be shown',
        ),
        (pandas.DataFrame({"text": ["a", 7]}), 'document 2: "text" is a number.*got 7'),
        (pandas.DataFrame([["a", "b"]], columns=["text", "text"]), "columns of different names, got 'text' twice"),
        (pyarrow.Table.from_arrays([["a"], ["b"]], names=["text", "text"]), "got 'text' twice"),
        (pyarrow.chunked_array([["a"]]), "expected a table that Arrow can read, got ChunkedArray"),
    ],
)
def test_what_cannot_be_stored_names_row_column_and_value(table, message):
    with pytest.raises(DocumentError, match=message):
        stored(table)
