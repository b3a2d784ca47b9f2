"""Columns of declared filter fields: the same matches as without, through every change, and damage that is named."""

import datetime
import json
import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mvindex
from mvindex.errors import ConfigError, DamagedIndex, QueryError, Unsupported
from mvindex.store import columns
from tests.helpers.cli import mvindex as run
from tests.helpers.filter_oracle import holds
from tests.helpers.filter_strategies import DATES, OPERANDS, VALUES, conditions

KINDS = ["int", "float", "text", "date"]
_NUMBERS = [each for each in OPERANDS if each is None or type(each) in (int, float)]
_TEXTS = [each for each in OPERANDS if each is None or isinstance(each, str | dict)]
_DATES = [None, *DATES[:4], *({"$date": date} for date in DATES[:4])]
# What a field of the kind may be compared with.
OPERANDS_OF = dict(zip(KINDS, (_NUMBERS, _NUMBERS, _TEXTS, _DATES), strict=True))
CONDITIONS = {kind: conditions(operands) for kind, operands in OPERANDS_OF.items()}
# Numbers on both sides of what a double and 64 bits hold, and a text that another one begins with.
VALUES_OF_ROWS = [*VALUES, *DATES, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, 10**30, 1e300, "a\u0301"]


def made(path, fields, rows, **options):
    """An index of documents "0", "1", ... with this metadata and one view each."""
    index = mvindex.create(path, dim=2, filter_fields=fields, **options)
    index.add_views([mvindex.Document(str(number), "", metadata=row) for number, row in enumerate(rows)], vectors(rows))
    return index


def vectors(rows):
    return [[[1.0, number / 10]] for number in range(len(rows))]


def ids(index, condition):
    return {document.id for document in index.scan(condition)}


@pytest.fixture(scope="module", params=KINDS)
def changed(request, tmp_path_factory):
    """An index with columns of one kind whose documents were added, replaced, updated, deleted; and what it holds."""
    patch = pytest.MonkeyPatch()
    patch.setattr(columns, "_BLOCK_ROWS", 7)
    rows = [{"a": one, "b": VALUES_OF_ROWS[-number]} for number, one in enumerate(VALUES_OF_ROWS)]
    rows += [{"a": {"x": one}} for one in VALUES_OF_ROWS] + [{}]
    fields = dict.fromkeys(["a", "b", "a.x"], request.param)
    with made(tmp_path_factory.mktemp("columns") / "c.mvx", fields, rows) as index:
        stored = {str(number): row for number, row in enumerate(rows)}
        more = {"3": {"a": "b"}, "new": {"a": 1}, "5": {"b": 2.5}}
        index.add_views([mvindex.Document(i, "", metadata=row) for i, row in more.items()], vectors(more))
        updates = {"8": {"a": DATES[1]}, "20": {"b": 0}, "new": {"a": {"x": "é"}}}
        index.update_all(updates)
        index.delete(ids=["1", "30"])
        stored |= more | updates
        yield index, {key: row for key, row in stored.items() if key not in ("1", "30")}, request.param
    patch.undo()


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_column_matches_what_the_metadata_does(changed, data):
    index, rows, kind = changed
    condition = data.draw(CONDITIONS[kind])
    assert ids(index, condition) == {doc_id for doc_id, row in rows.items() if holds(condition, row, doc_id)}


@pytest.mark.parametrize("field", ["a", "b"])
@pytest.mark.parametrize("operator", ["eq", "lt", "lte", "gt", "gte"])
def test_numbers_at_the_ends_of_doubles_and_of_64_bits(changed, field, operator):
    index, rows, kind = changed
    if kind not in ("int", "float"):
        pytest.skip("numbers are refused")
    for operand in (2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 9.3e18, -9.3e18, 2.5, -2.5, 1e300):
        condition = {field: {operator: operand}}
        found = {doc_id for doc_id, row in rows.items() if holds(condition, row, doc_id)}
        assert ids(index, condition) == found, condition


@pytest.mark.parametrize("operator", ["eq", "ne", "lt", "lte", "gt", "gte", "in", "nin", "contains", "contains_any"])
@pytest.mark.parametrize(
    ("kind", "wrong", "expected"),
    [
        ("int", "1990", "declared as int: expected a number, got '1990'"),
        ("int", datetime.date(2024, 5, 1), "expected a number"),
        ("float", "1", "declared as float: expected a number"),
        ("text", 1, "declared as text: expected a string, got 1"),
        ("date", 20240501, "declared as date: expected a date in ISO 8601"),
        ("date", "yesterday", "declared as date: expected a date in ISO 8601"),
        ("date", True, "expected a (date|number or a string)"),
    ],
)
def test_an_operand_of_another_type_than_the_declared_one_is_refused(tmp_path, operator, kind, wrong, expected):
    condition = {"n": {operator: [wrong] if operator in ("in", "nin", "contains_any") else wrong}}
    with made(tmp_path / "w.mvx", {"n": kind}, [{"n": 1}]) as index:
        for refused in (lambda: ids(index, condition), lambda: index.delete(filter=condition)):
            with pytest.raises(QueryError, match=expected):
                refused()
        assert ids(index, {"n": {"ne": None}}) == {"0"}


def test_lists_are_found_by_their_members_through_every_change_of_them(tmp_path):
    rows = [{"tags": ["red", "blue"]}, {"tags": "red"}, {"tags": []}, {"tags": ["blue", 7, None]}, {}]
    with made(tmp_path / "t.mvx", {"tags": "text"}, rows) as index:
        assert ids(index, {"tags": {"contains": "blue"}}) == {"0", "3"}
        assert ids(index, {"tags": {"contains_all": ["red", "blue"]}}) == {"0"}
        index.update("0", metadata={"tags": ["green"]})
        assert ids(index, {"tags": {"contains_any": ["blue", "green"]}}) == {"0", "3"}
        index.update("3", metadata={"tags": ["red"]})
        assert ids(index, {"tags": {"contains_any": ["blue", "red"]}}) == {"3"}
        assert ids(index, {"tags": {"contains_all": []}}) == {"0", "2", "3"}
        assert ids(index, {"not": {"tags": {"contains": "green"}}}) == {"1", "2", "3", "4"}
        assert index.admin.verify().is_sound


def test_columns_that_have_no_members_yet_are_answered_from_the_metadata(tmp_path):
    """Version 0.2 wrote such columns, and looked for keys between dots only."""
    path, rows = tmp_path / "o.mvx", [{"tags": ["red"], "k.d": 1}, {"tags": ["blue"], "k": {"d": 1}}]
    made(path, {"tags": "text", "k.d": "int"}, rows).close()
    [catalog] = path.glob("*/catalog.sqlite")
    with closing(sqlite3.connect(catalog)) as connection, connection:
        connection.execute("DELETE FROM columns WHERE field LIKE '%members'")
    with mvindex.open(path) as index:
        index.add_views([mvindex.Document("2", "", metadata={"tags": ["red"], "k.d": 1})], [[[1.0, 0.0]]])
        index.update("1", metadata={"tags": ["red", "green"], "k": {"d": 1}})
        assert ids(index, {"tags": {"contains": "red"}, "k.d": 1}) == {"0", "1", "2"}
        index.admin.set_filter_fields(index.info().filter_fields)
        assert ids(index, {"tags": {"contains": "red"}, "k.d": 1}) == {"0", "1", "2"}
        assert index.admin.verify().is_sound


def test_columns_follow_every_change_and_stay_through_compaction_and_snapshot(changed, tmp_path):
    index, rows, kind = changed
    condition = {
        "or": [{"a": {"exists": True}}, {"b": {"contains": OPERANDS_OF[kind][1]}}, {"b": OPERANDS_OF[kind][2]}]
    }
    expected = ids(index, condition)
    index.admin.snapshot(tmp_path / "copy.mvx")
    with mvindex.open(tmp_path / "copy.mvx") as copy:
        assert copy.info().filter_fields == index.info().filter_fields
        copy.admin.compact()
        assert ids(copy, condition) == expected
        assert copy.admin.verify().is_sound
    assert len(rows) == len(index)


def test_a_reader_sees_what_another_process_changed(tmp_path):
    with made(tmp_path / "r.mvx", {"year": "int"}, [{"year": 1990}, {"year": 2000}]) as writer:
        with mvindex.open(tmp_path / "r.mvx") as reader:
            assert ids(reader, {"year": {"gte": 1995}}) == {"1"}
            writer.update("0", metadata={"year": 1999})
            writer.add_views([mvindex.Document("2", "", metadata={"year": 2005})], [[[1.0, 0.0]]])
            reader.refresh()
            assert ids(reader, {"year": {"gte": 1995}}) == {"0", "1", "2"}


def test_fields_are_declared_changed_and_removed_later(tmp_path):
    rows = [{"day": "2024-05-01", "n": 1}, {"day": "2025-01-01", "n": "1"}, {}]
    with made(tmp_path / "l.mvx", None, rows) as index:
        assert index.info().filter_fields == {}
        for fields in ({"n": "text", "day": "date"}, {"n": "int"}, {}):
            index.admin.set_filter_fields(fields)
            assert index.info().filter_fields == fields
            assert ids(index, {"day": {"gte": datetime.date(2024, 6, 1)}}) == {"1"}
            one = "1" if fields.get("n") == "text" else 1
            assert ids(index, {"n": one, "day": {"exists": True}}) == {str(int(one == "1"))}
            assert index.admin.verify().is_sound
        index.admin.build("exact")


@pytest.mark.parametrize("fields", [{"n": "float"}, {"n": "text"}, {}])
def test_a_reader_of_an_older_state_reads_columns_as_they_are_declared_now(tmp_path, fields):
    with made(tmp_path / "o.mvx", {"n": "int"}, [{"n": 1}, {"n": 2}, {"n": "2"}]) as writer:
        with mvindex.open(tmp_path / "o.mvx") as reader:
            assert ids(reader, {"n": {"gte": 2}}) == {"1"}
            writer.admin.set_filter_fields(fields)
            assert ids(reader, {"n": "2" if "text" in fields.values() else 2}) == {str(1 + ("text" in fields.values()))}


def test_shards_have_columns_and_milvus_refuses_them(tmp_path):
    rows = [{"n": number} for number in range(20)]
    with made(tmp_path / "s.mvx", {"n": "int"}, rows, shards=3) as index:
        assert index.info().filter_fields == {"n": "int"}
        assert ids(index, {"n": {"lt": 3}}) == {"0", "1", "2"}
        assert [hit.id for hit in index.search([0.0, 1.0], top_k=2, filter={"n": {"lt": 3}}).hits] == ["2", "1"]


@pytest.mark.needs("milvus-lite")
def test_milvus_refuses_columns(tmp_path):
    address = f"milvus-lite:{tmp_path / 'm.db'}"
    with pytest.raises(ConfigError, match="filter_fields"):
        mvindex.create(address, dim=2, filter_fields={"n": "int"})
    with mvindex.create(address, dim=2) as index, pytest.raises(Unsupported, match="columns"):
        index.admin.set_filter_fields({"n": "int"})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"year": "number"}, "filter field 'year': expected one of int, float, text, date, got 'number'"),
        ({"id": "text"}, "filter field 'id': expected a key of the metadata"),
        ({"$a": "int"}, "filter field '\\$a': expected a key of the metadata"),
        ({'a"': "int"}, "expected a key of the metadata"),
    ],
)
def test_what_cannot_be_a_filter_field_is_refused(tmp_path, fields, message):
    with pytest.raises(ConfigError, match=message):
        mvindex.create(tmp_path / "no.mvx", dim=2, filter_fields=fields)
    assert not (tmp_path / "no.mvx").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE columns SET data = zeroblob(length(data))",
        "UPDATE columns SET checksum = checksum + 1",
        "UPDATE columns SET data = 'text'",
        "DELETE FROM columns",
    ],
)
def test_a_damaged_column_is_named_and_rebuilt_from_the_metadata(tmp_path, statement):
    path = tmp_path / "d.mvx"
    made(path, {"n": "int"}, [{"n": number} for number in range(9)]).close()
    [catalog] = path.glob("*/catalog.sqlite")
    with closing(sqlite3.connect(catalog)) as connection, connection:
        connection.execute(statement)
    with mvindex.open(path) as index:
        with pytest.raises(DamagedIndex, match="column of filter field 'n'"):
            index.search([1.0, 0.0], filter={"n": {"gt": 4}})
        report = index.admin.verify()
        assert not report.is_sound and all(problem.is_derived for problem in report.problems)
        assert index.admin.rebuild_columns_if_damaged()
        assert ids(index, {"n": {"gt": 6}}) == {"7", "8"} and index.admin.verify().is_sound


def test_a_damaged_row_that_a_column_points_to_is_named(tmp_path):
    path = tmp_path / "d.mvx"
    made(path, {"n": "int"}, [{"n": number, "lang": "en"} for number in range(40)]).close()
    [catalog] = path.glob("*/catalog.sqlite")
    with closing(sqlite3.connect(catalog)) as connection, connection:
        connection.execute("UPDATE metadata SET json = replace(json, 'en', 'de') WHERE doc_row = 7")
    with mvindex.open(path) as index, pytest.raises(DamagedIndex, match="metadata of document '7'"):
        index.search([1.0, 0.0], filter={"n": 7, "lang": "en"})


def test_the_command_line_declares_fields(tmp_path):
    corpus = tmp_path / "c.jsonl"
    rows = [{"id": str(year), "text": f"text of {year}", "year": year} for year in (1990, 2000)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = tmp_path / "c.mvx"
    made_by = ["ingest", str(corpus), "--index", str(index), "--encoder", "minilm", "--filter-field", "year:int"]
    assert run(*made_by, cwd=tmp_path).returncode == 0
    info = json.loads(run("info", "--index", str(index), "--json", cwd=tmp_path).stdout)
    assert info["filter_fields"] == {"year": "int"}
    refused = run(*made_by[:-1], "year:date", cwd=tmp_path)
    assert refused.returncode != 0 and "was made with filter-fields {'year': 'int'}" in refused.stderr
    built = run("build", "--index", str(index), "--filter-field", "lang:text", "--json", cwd=tmp_path)
    assert json.loads(built.stdout)["filter_fields"] == {"lang": "text", "year": "int"}
    wrong = run("build", "--index", str(index), "--filter-field", "year", cwd=tmp_path)
    assert wrong.returncode == 2 and "expected NAME:TYPE" in wrong.stderr
    removed = run("build", "--index", str(index), "--filter-field", "none", "--json", cwd=tmp_path)
    assert json.loads(removed.stdout)["filter_fields"] == {}
