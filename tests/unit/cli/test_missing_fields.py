"""A filter on a field that no document has: `mvindex query` finds nothing, and says why."""

import pytest

import mvindex
from mvindex import Document
from mvindex.testing import unit
from tests.helpers import cli


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fields")
    with mvindex.create(folder / "a.mvx", dim=2, lexical="unicode") as index:
        documents = [Document("a", "the Rhine", metadata={"lang": "en", "year": 1973}), Document("b", "the Oder")]
        index.add_views(documents, [unit([[1.0, 0.0]])] * 2)
    return folder


@pytest.mark.parametrize(
    "condition, said",
    [
        ('{"langg": "en"}', ["--filter: no document has a field 'langg'; did you mean 'lang'?"]),
        ("author = x", ["--filter: no document has a field 'author'; the first documents have lang, year"]),
        (
            '{"or": [{"yeer": {"gt": 1}}, {"not": {"a.b": {"ne": 2}}}, {"lang": "de"}]}',
            [
                "--filter: no document has a field 'a.b'; the first documents have lang, year",
                "--filter: no document has a field 'yeer'; did you mean 'year'?",
            ],
        ),
        ('{"lang": "de"}', []),
        ('{"id": "c"}', []),
        ('{"langg": {"exists": false}}', []),
    ],
)
def test_fields_that_no_document_has_are_named_where_nothing_is_found(folder, condition, said):
    done = cli.mvindex("query", "rhine", "--mode", "lexical", "--filter", condition, "--json", cwd=folder)
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if line.startswith("--filter")] == said
