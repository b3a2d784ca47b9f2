"""A query group gives the documents of brute force over the combined scores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mvindex
from mvindex import Document, QueryGroup
from mvindex.errors import QueryError
from mvindex.index import Index
from mvindex.records import Combine, Doubles, Floats
from mvindex.search import exact as module

_DIM, _COUNT = 4, 600
_COMBINE = {"max": np.max, "sum": np.sum, "mean": np.mean}


def _views(seed: int) -> Floats:
    """Return (n, 3, d) views of few small whole numbers, so that scores are exact and tie often."""
    return np.random.default_rng(seed).integers(-2, 3, (_COUNT, 3, _DIM)).astype(np.float32)


@pytest.fixture(scope="module", params=[None, 3])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    options = {} if request.param is None else {"shards": request.param}
    path = tmp_path_factory.mktemp("group") / "i.mvx"
    with mvindex.create(path, encoder=None, dim=_DIM, **options) as made:
        documents = [Document(str(n), f"text {n}", metadata={"part": n % 5}) for n in range(_COUNT)]
        made.add_views(documents, _views(1))
        made.delete(ids=[str(n) for n in range(0, _COUNT, 7)])
        yield made


def _brute_force(queries: Floats, combine: str, part: int | None, drpq: bool) -> list[tuple[str, float]]:
    sums: Doubles = np.einsum("nkd,md->mnk", _views(1).astype(np.float64), queries.astype(np.float64))
    scores = sums.max(axis=2)
    if drpq:
        weights = np.exp(sums - sums.max(axis=2, keepdims=True))
        scores = (weights * sums).sum(axis=2) / weights.sum(axis=2)
    combined = _COMBINE[combine](scores, axis=0)
    allowed = [n for n in range(_COUNT) if n % 7 and (part is None or n % 5 == part)]
    return [(str(n), float(combined[n])) for n in sorted(allowed, key=lambda n: (-combined[n], n))]


@pytest.mark.parametrize("combine", list(_COMBINE))
@pytest.mark.parametrize(("top_k", "part"), [(1, None), (5, None), (40, 2), (2000, None), (2000, 3)])
def test_a_group_gives_the_documents_of_brute_force(index: Index, combine: str, top_k: int, part: int | None) -> None:
    rng = np.random.default_rng(top_k)
    for m in (1, 2, 4):
        queries = rng.integers(-2, 3, (m, _DIM)).astype(np.float32)
        chosen = None if part is None else {"part": part}
        result = index.search(QueryGroup(queries, combine), top_k, chosen)
        expected = _brute_force(queries, combine, part, drpq=False)[:top_k]
        assert [hit.id for hit in result.hits] == [doc_id for doc_id, _ in expected]
        assert [hit.score for hit in result.hits] == [float(np.float32(score)) for _, score in expected]
        assert result.exact
        assert result.short_by == 0


@pytest.mark.parametrize("combine", list(_COMBINE))
def test_drpq_scores_are_combined(index: Index, combine: str) -> None:
    queries = np.random.default_rng(5).normal(size=(3, _DIM)).astype(np.float32)
    result = index.search(QueryGroup(queries, combine), 20, scoring="drpq", temperature=1.0)
    expected = _brute_force(queries, combine, None, drpq=True)[:20]
    assert [hit.id for hit in result.hits] == [doc_id for doc_id, _ in expected]
    np.testing.assert_allclose([hit.score for hit in result.hits], [score for _, score in expected], rtol=1e-5)
    assert result.exact


@pytest.mark.parametrize("combine", list(_COMBINE))
@pytest.mark.parametrize("scoring", ["max", "drpq"])
def test_one_query_is_searched_as_without_a_group(index: Index, combine: str, scoring: str) -> None:
    for query in np.random.default_rng(6).normal(size=(5, _DIM)).astype(np.float32):
        assert index.search(QueryGroup(query[None], combine), 9, scoring=scoring) == index.search(
            query, 9, scoring=scoring
        )


@pytest.mark.parametrize("combine", ["max", "mean"])
def test_the_same_query_twice_changes_nothing(index: Index, combine: str) -> None:
    query = np.random.default_rng(7).normal(size=_DIM).astype(np.float32)
    assert index.search(QueryGroup(np.tile(query, (3, 1)), combine), 9).hits == index.search(query, 9).hits


def test_the_slot_is_that_of_the_best_pair_of_vector_and_view(index: Index) -> None:
    queries = np.random.default_rng(8).normal(size=(3, _DIM)).astype(np.float32)
    for hit in index.search(QueryGroup(queries, "sum"), 9).hits:
        pairs = _views(1)[int(hit.id)].astype(np.float64) @ queries.T.astype(np.float64)
        assert hit.slot == int(pairs.max(axis=1).argmax())


def test_lists_too_short_to_prove_the_sum_are_extended(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_DEPTH", 1)
    opposed = np.array([[2, 1, 0, 0], [-2, 0, 1, 0]], dtype=np.float32)
    result = index.search(QueryGroup(opposed, "sum"), 3)
    assert [hit.id for hit in result.hits] == [doc_id for doc_id, _ in _brute_force(opposed, "sum", None, False)[:3]]
    assert result.rounds > 1


def test_several_groups_give_several_results(index: Index) -> None:
    groups = [QueryGroup(np.eye(_DIM)[:2], "sum"), QueryGroup(np.eye(_DIM)[2:])]
    assert index.search(groups, 4) == [index.search(group, 4) for group in groups]


def test_combined_scores_do_not_depend_on_how_many_there_are() -> None:
    scores = np.random.default_rng(9).normal(size=(40, 30)).astype(np.float32)
    for combine in Combine:
        alone = [module.combine_scores(scores[:, at : at + 1], combine)[0] for at in range(30)]
        np.testing.assert_array_equal(module.combine_scores(scores, combine), alone)


@pytest.mark.parametrize(
    ("queries", "options", "message"),
    [
        ("a text", {}, "expected several texts"),
        ([], {}, "at least one query"),
        (np.zeros((0, _DIM)), {}, "at least one query"),
        (np.zeros(_DIM), {}, "expected an \\(m, d\\) array"),
        (np.zeros((2, _DIM + 1)), {}, "expected shape"),
        (np.zeros((2, _DIM)), {"mode": "hybrid"}, "searches texts"),
        (np.zeros((2, _DIM)), {"mode": "lexical"}, "reads no vectors of a query group"),
        (np.zeros((2, _DIM)), {"text": ["one", "two"]}, "expected one text"),
        (np.zeros((2, _DIM)), {"rerank": lambda query, hits: [0.0] * len(hits)}, "rerank= reads one text"),
    ],
)
def test_a_wrong_group_is_refused(index: Index, queries: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        index.search(QueryGroup(queries), **options)


def test_another_way_to_combine_is_refused() -> None:
    with pytest.raises(QueryError, match="expected 'max', 'sum' or 'mean', got 'min'"):
        QueryGroup(["a"], "min")


def test_a_list_of_groups_and_texts_is_refused(index: Index) -> None:
    with pytest.raises(QueryError, match="expected query groups only"):
        index.search([QueryGroup(np.eye(_DIM)), "text"])


def test_a_hybrid_group_of_one_text_is_searched_as_that_text(tmp_path: Path) -> None:
    texts = ["The oil crisis began in 1973.", "It ended in March 1974.", "Bread is made of flour.", "Oil floats."]
    with mvindex.create(tmp_path / "i.mvx", encoder="minilm", lexical="english") as index:
        index.add([Document(str(n), text) for n, text in enumerate(texts)])
        for mode in ("dense", "hybrid"):
            plain, group = (index.search(q, 3, mode=mode) for q in ("oil crisis", QueryGroup(["oil crisis"])))
            assert group == plain
            assert [hit.citation for hit in group.hits] == [hit.citation for hit in plain.hits]
        both = index.search(QueryGroup(["oil crisis", "what is bread made of?"]), 2, mode="dense")
        assert {hit.id for hit in both.hits} == {"0", "2"}
        assert {hit.citation.text for hit in both.hits if hit.citation} == {texts[0], texts[2]}
        assert index.search(QueryGroup(["oil crisis", "bread"], "mean"), 4, mode="hybrid").mode == "hybrid"
