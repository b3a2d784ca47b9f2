"""A result as a sequence of hits, as rows and as a table of a notebook; what an index says of itself."""

import re
from dataclasses import replace

import numpy as np
import pytest

import mvindex
from mvindex.errors import QueryError
from mvindex.plugins import ExtraMissing

HOSTILE = "<script>alert(1)</script> & the oil crisis began in October. It was late."


@pytest.fixture
def index(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2, lexical="unicode") as index:
        documents = [
            mvindex.Document(f"d{n}", f"{HOSTILE} {n}", title="<b>T</b>", metadata={"n": n}) for n in range(30)
        ]
        index.add_views(documents, np.random.default_rng(1).standard_normal((30, 1, 2)).astype(np.float32))
        yield index


def test_a_result_is_a_sequence_of_its_hits(index):
    result = index.search(np.ones(2), 5)
    assert (len(result), list(result), result[0], result[-1]) == (5, list(result.hits), result.hits[0], result.hits[4])
    assert result[1:3] == result.hits[1:3]
    with pytest.raises(IndexError):
        result[5]
    nothing = index.search(np.ones(2), filter={"n": 99})
    assert len(nothing) == 0 and bool(nothing)


def test_rows_have_what_people_want_to_see(index):
    result = index.search(np.ones(2), 3, text="when did the oil crisis begin?", mode="hybrid")
    rows = result.to_dicts()
    assert [row["rank"] for row in rows] == [1, 2, 3]
    for row, hit in zip(rows, result, strict=True):
        assert (row["id"], row["score"], row["text"], row["metadata"]) == (hit.id, hit.score, hit.text, hit.metadata)
        assert row["citation"] == hit.citation.text


def test_a_table_of_pandas(index):
    pandas = pytest.importorskip("pandas")
    frame = index.search(np.ones(2), 3).to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["rank"]) == [1, 2, 3]
    empty = index.search(np.ones(2), filter={"n": 99}).to_pandas()
    assert list(empty.columns) == list(frame.columns) and len(empty) == 0


def test_pandas_is_named_where_it_is_missing(index, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ExtraMissing, match="pip install"):
        index.search(np.ones(2), 3).to_pandas()


def test_a_notebook_shows_an_escaped_table_with_the_citation_marked(index):
    result = index.search(np.ones(2), 25, text="when did the oil crisis begin?", mode="hybrid")
    html = result._repr_html_()
    assert "<script>" not in html and "<b>T</b>" not in html and "&lt;script&gt;" in html
    assert html.count("<tr>") == 21 and html.count("<mark>") == 20
    marked = re.findall("<mark>(.*?)</mark>", html)
    assert "oil crisis began in October" in marked[0]
    assert "25 documents, hybrid, exact" in html


def test_long_texts_are_cut_around_the_citation(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2, lexical="unicode") as index:
        text = "Words of no use. " * 300 + "The zebra sleeps at noon. " + "More of them. " * 300
        index.add_views([mvindex.Document("1", text)], np.ones((1, 1, 2), dtype=np.float32))
        html = index.search(np.ones(2), text="when does the zebra sleep?", mode="hybrid")._repr_html_()
    assert "<mark>The zebra sleeps at noon.</mark>" in html and len(html) < 1500


def test_an_index_says_what_it_is(index, tmp_path):
    assert repr(index) == f"<Index {tmp_path / 'a.mvx'}: 30 documents, 30 views, 2 dimensions, engine exact>"
    index.close()
    assert "a.mvx" in repr(index)


def test_a_hit_is_explained_as_by_its_id_with_the_ranks_of_views_and_terms(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2, lexical="unicode") as index:
        views, spans = np.array([[3, 0], [0, 4]], dtype=np.float32), [[(0, 25), (25, len(HOSTILE))]]
        index.add_views([mvindex.Document("a", HOSTILE)], [views], spans=spans)
        hit = index.search(np.ones(2), 1, text="when did the oil crisis begin?", mode="hybrid")[0]
        found, by_id = index.explain(np.ones(2), hit), index.explain(np.ones(2), "a")
        alone = index.explain(hit)
    assert found == by_id == alone and (found.components, by_id.components) == (hit.components, ())
    assert alone.components == hit.components
    html = found._repr_html_()
    assert "<caption>" not in by_id._repr_html_() and html.count("<tr>") == 3
    assert [float(score) for score in re.findall(r"<td>(\d\.\d+)</td>", html)] == [4, 3]
    assert re.findall("<b>(.*?)</b>", html) == [" &amp; the oil crisis began in October. It was late."]
    assert "&lt;script&gt;" in html and "<script>" not in html
    for name, part in zip(("dense", "lexical"), hit.components, strict=True):
        assert f"{name}: rank {part.rank}, score {part.score:.4f}" in html


@pytest.mark.parametrize("scoring", [{}, {"scoring": "drpq", "temperature": 0.5}], ids=["max", "drpq"])
def test_a_hit_alone_is_explained_by_the_query_that_found_it(index, scoring):
    queries = np.array([[1, 0], [0.6, 0.8]], np.float32)
    for query, result in zip(queries, index.search(queries, 3, **scoring), strict=True):
        assert [index.explain(hit) for hit in result] == [index.explain(query, hit, **scoring) for hit in result]


def test_a_hit_is_explained_by_another_scoring_and_after_its_query_was_overwritten(index):
    query = np.array([1, 0], np.float32)
    hit = index.search(query, 1, scoring="drpq", temperature=0.5)[0]
    expected = index.explain(query, hit, "max")
    query[:] = [0, 1]
    assert index.explain(hit, scoring="max") == expected


def test_a_hit_without_a_query_is_refused(index):
    hit = index.search(np.ones(2), 1)[0]
    found = {
        "by documents": index.search(like="d1", top_k=1)[0],
        "by several queries": index.search(mvindex.QueryGroup(np.eye(2)), 1)[0],
        "copied": replace(hit),
    }
    for each in found.values():
        with pytest.raises(QueryError, match=rf"the hit '{each.id}' has no query: .*explain\(query, hit\)"):
            index.explain(each)
    with pytest.raises(QueryError, match="expected a hit alone, .* got a hit and another document"):
        index.explain(hit, "d1")
    with pytest.raises(QueryError, match="expected a hit, or a query and a hit or an id, got a query alone"):
        index.explain(np.ones(2))


def test_a_hit_that_was_deleted_is_named(index):
    hit = index.search(np.ones(2), 1)[0]
    index.delete(ids=hit.id)
    with pytest.raises(QueryError, match=f"there is no document '{hit.id}'"):
        index.explain(np.ones(2), hit)
