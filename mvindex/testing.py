"""Contract suites: subclass one per implementation, so that each answers the same questions. Needs pytest.

class TestMyIndex(IndexContract):
    def open_index(self, tmp_path): return mvindex.create(tmp_path / "x.mvx", dim=self.dim)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mvindex.engines.base import RankingEngine
from mvindex.errors import QueryError
from mvindex.index import Index
from mvindex.records import Bools, Document, Floats, SearchResult


def brute_force(
    views: Mapping[str, Floats], query: Floats, top_k: int, ordinals: Mapping[str, int] | None = None
) -> list[tuple[str, np.float32, int]]:
    """The plain truth, (id, score, slot) of the top_k: float64 products of what fp16 holds, one document at a time."""
    rows = []
    for position, (doc_id, rows_of) in enumerate(views.items()):
        stored = rows_of.astype(np.float16).astype(np.float64)
        scores = np.array([np.sum(row * query.astype(np.float64)) for row in stored]).astype(np.float32)
        slot = int(np.argmax(scores))
        rows.append((-scores[slot], ordinals[doc_id] if ordinals else position, doc_id, slot))
    return [(doc_id, -score, slot) for score, _, doc_id, slot in sorted(rows)[:top_k]]


def assert_same(result: SearchResult, expected: Sequence[tuple[str, np.float32, int]]) -> None:
    """Nothing; ids, order and scores are those expected, and the result says that it is whole."""
    assert result.short_by == 0
    assert [hit.id for hit in result.hits] == [row[0] for row in expected]
    assert [np.float32(hit.score) for hit in result.hits] == [row[1] for row in expected]
    assert [hit.slot for hit in result.hits] == [row[2] for row in expected]


class IndexContract:
    """What every index promises, whatever stores and searches it (design: promises 1 to 4).

    dim: of the views. is_exact: whether its results are those of brute force, and say so.
    """

    dim = 16
    is_exact = True

    def open_index(self, tmp_path: Path) -> Index:
        """A new empty index of given vectors with self.dim dims."""
        raise NotImplementedError

    def settle(self, index: Index) -> None:
        """Nothing; called after writes and before searches: build an engine here."""

    @pytest.fixture
    def index(self, tmp_path: Path) -> Iterator[Index]:
        """The index under test."""
        with self.open_index(tmp_path) as index:
            yield index

    @pytest.fixture
    def rng(self) -> np.random.Generator:
        """A seeded generator."""
        return np.random.default_rng(7)

    def fill(self, index: Index, views: Mapping[str, Floats], metadata: Mapping[str, Any] | None = None) -> None:
        """Nothing; one document per entry, whose text is its id."""
        documents = [
            Document(doc_id, f"text of {doc_id}", metadata=(metadata or {}).get(doc_id, {})) for doc_id in views
        ]
        index.add_views(documents, list(views.values()))
        self.settle(index)

    def check(self, index: Index, views: Mapping[str, Floats], query: Floats, top_k: int, **options: Any) -> None:
        """Nothing; the search gives what brute force gives (approximate: as many, distinct, rightly scored)."""
        result = index.search(query, top_k=top_k, **options)
        if self.is_exact or options.get("exact"):
            assert result.exact
            assert_same(result, brute_force(views, query, top_k))
            return
        scores = {doc_id: score for doc_id, score, _ in brute_force(views, query, len(views))}
        assert result.short_by == 0
        assert len({hit.id for hit in result.hits}) == len(result.hits) == min(top_k, len(views))
        assert [np.float32(hit.score) for hit in result.hits] == [scores[hit.id] for hit in result.hits]

    def test_ragged_views_give_the_brute_force_ranking(self, index: Index, rng: np.random.Generator) -> None:
        views = random_views(rng, 300, self.dim)
        self.fill(index, views)
        for query in rng.standard_normal((5, self.dim)).astype(np.float32):
            for top_k in (1, 10, 299, 300, 500):
                self.check(index, views, query, top_k)

    @pytest.mark.parametrize("crowd_views", [8, 16, 32])
    def test_crowded_documents_leave_no_query_short(
        self, index: Index, rng: np.random.Generator, crowd_views: int
    ) -> None:
        """The views of ten documents all lie next to the query, as a naive over-fetch never expects."""
        query = unit(rng.standard_normal(self.dim))
        crowd = {f"c{n}": unit(query + 0.02 * rng.standard_normal((crowd_views, self.dim))) for n in range(10)}
        views = crowd | {f"r{n}": unit(rng.standard_normal((4, self.dim))) for n in range(200)}
        self.fill(index, views)
        for top_k in (5, 10, 20, 50, 210):
            self.check(index, views, query, top_k)

    def test_exact_duplicates_are_ordered_by_ordinal(self, index: Index, rng: np.random.Generator) -> None:
        same = unit(rng.standard_normal((3, self.dim)))
        other = unit(rng.standard_normal(self.dim))
        views = {f"d{n}": other[None] if n == 250 else same for n in range(700)}
        self.fill(index, views)
        for top_k in (1, 7, 100, 500):
            self.check(index, views, same[1], top_k)

    def test_a_batch_gives_what_each_query_gives_alone(self, index: Index, rng: np.random.Generator) -> None:
        views = random_views(rng, 200, self.dim)
        self.fill(index, views)
        queries = rng.standard_normal((70, self.dim)).astype(np.float32)
        if not self.is_exact:
            pytest.skip("an approximate engine may answer a batch by another path through its graph")
        together = index.search(queries, top_k=10)
        assert together == [index.search(query, top_k=10) for query in queries]

    def test_deleted_documents_never_come_back(self, index: Index, rng: np.random.Generator) -> None:
        views = random_views(rng, 200, self.dim)
        self.fill(index, views)
        gone = [f"d{n}" for n in range(0, 200, 3)]
        assert index.delete(ids=[*gone, "not there"]) == len(gone)
        left = {doc_id: rows for doc_id, rows in views.items() if doc_id not in gone}
        assert len(index) == len(left)
        for query in rng.standard_normal((3, self.dim)).astype(np.float32):
            self.check(index, left, query, 20)
            self.check(index, left, query, 200)

    def test_a_filter_is_never_short_of_what_it_allows(self, index: Index, rng: np.random.Generator) -> None:
        views = random_views(rng, 300, self.dim)
        metadata = {doc_id: {"group": number % 50, "even": number % 2 == 0} for number, doc_id in enumerate(views)}
        self.fill(index, views, metadata)
        query = rng.standard_normal(self.dim).astype(np.float32)
        for condition, keep in (
            ({"group": 7}, lambda m: m["group"] == 7),
            ({"even": True}, lambda m: m["even"]),
            ({"group": {"gte": 48}}, lambda m: m["group"] >= 48),
            ({"group": -1}, lambda m: False),
        ):
            left = {doc_id: rows for doc_id, rows in views.items() if keep(metadata[doc_id])}
            self.check(index, left, query, 30, filter=condition)

    def test_documents_added_since_the_build_are_found(self, index: Index, rng: np.random.Generator) -> None:
        views = random_views(rng, 150, self.dim)
        self.fill(index, views)
        fresh = {f"new{n}": unit(rng.standard_normal((2, self.dim))) for n in range(40)}
        index.add_views([Document(doc_id, doc_id) for doc_id in fresh], list(fresh.values()))
        query = fresh["new3"][1]
        self.check(index, views | fresh, query, 1)
        self.check(index, views | fresh, query, 60)

    def test_a_replaced_document_keeps_its_place_and_shows_its_new_views(
        self, index: Index, rng: np.random.Generator
    ) -> None:
        views = random_views(rng, 50, self.dim)
        self.fill(index, views)
        same = views["d0"]
        report = index.add_views([Document("d0", "new text"), Document("d9", "also new")], [same, same])
        assert (report.added, report.replaced) == (0, 2)
        assert len(index) == 50
        self.check(index, views | {"d9": same}, same[0], 50)
        found = index.get("d9")
        assert found is not None and found.text == "also new"

    def test_exact_search_is_certified_whatever_the_kind(self, index: Index, rng: np.random.Generator) -> None:
        views = random_views(rng, 200, self.dim)
        self.fill(index, views)
        self.check(index, views, rng.standard_normal(self.dim).astype(np.float32), 25, exact=True)

    def test_an_empty_index_answers_with_nothing(self, index: Index) -> None:
        result = index.search(np.ones(self.dim, dtype=np.float32), top_k=5)
        assert (result.hits, result.short_by, result.exact) == ((), 0, True)

    def test_adding_the_same_again_changes_nothing(self, index: Index, rng: np.random.Generator) -> None:
        views = random_views(rng, 20, self.dim)
        self.fill(index, views)
        documents = [Document(doc_id, f"text of {doc_id}") for doc_id in views]
        report = index.add_views(documents, list(views.values()))
        assert (report.added, report.replaced, report.unchanged) == (0, 0, 20)

    def test_metadata_is_replaced_without_touching_the_rest(self, index: Index, rng: np.random.Generator) -> None:
        views = random_views(rng, 20, self.dim)
        self.fill(index, views)
        index.update("d3", metadata={"lang": "de"})
        self.check(index, {"d3": views["d3"]}, views["d3"][0], 5, filter={"lang": "de"})
        found = index.get("d3")
        assert found is not None and found.metadata == {"lang": "de"} and found.text == "text of d3"

    def test_a_wrong_query_is_refused(self, index: Index, rng: np.random.Generator) -> None:
        self.fill(index, random_views(rng, 5, self.dim))
        good = np.ones(self.dim, dtype=np.float32)
        for bad in (good[:-1], good * np.nan, good * np.inf, "a text", good.reshape(1, 1, -1)):
            with pytest.raises(QueryError):
                index.search(bad)
        for top_k in (0, -1, 1.5, True, None):
            with pytest.raises(QueryError, match="top_k"):
                index.search(good, top_k=top_k)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(QueryError, match="scoring"):
            index.search(good, scoring="mean")
        with pytest.raises(TypeError):
            index.search(good, k=3)  # type: ignore[call-overload]  # wrong on purpose


class EngineContract:
    """What every ranking engine promises: falling scores, rows that exist, -inf and -1 as padding, masks obeyed."""

    dim = 24
    is_exact = True

    def build(self, views: Floats, tmp_path: Path) -> RankingEngine:
        """The engine over these view rows, (r, dim), each a document of its own."""
        raise NotImplementedError

    @pytest.fixture
    def views(self) -> Floats:
        """View rows as fp16 holds them."""
        return unit(np.random.default_rng(3).standard_normal((400, self.dim))).astype(np.float16).astype(np.float32)

    def test_scores_fall_and_belong_to_their_rows(self, views: Floats, tmp_path: Path) -> None:
        engine = self.build(views, tmp_path)
        queries = unit(np.random.default_rng(4).standard_normal((6, self.dim)))
        scores, rows = engine.search(queries, 50, None)
        assert scores.shape == rows.shape == (6, 50)
        assert (np.diff(scores, axis=1) <= 0).all()
        true = np.take_along_axis(queries @ views.T, rows, axis=1)
        assert np.abs(scores - true).max() <= max(engine.error(queries).max(), 1e-6)

    def test_an_exact_ranking_is_that_of_all_rows(self, views: Floats, tmp_path: Path) -> None:
        engine = self.build(views, tmp_path)
        if not engine.capabilities.is_exact:
            pytest.skip("the engine is approximate: Capabilities(is_exact=False)")
        queries = unit(np.random.default_rng(5).standard_normal((6, self.dim)))
        _, rows = engine.search(queries, 400, None)
        assert (np.sort(rows, axis=1) == np.arange(400)).all()

    def test_a_mask_is_obeyed_and_padding_is_marked(self, views: Floats, tmp_path: Path) -> None:
        engine = self.build(views, tmp_path)
        if not engine.capabilities.can_filter:
            pytest.skip("the engine takes no mask: Capabilities(can_filter=False)")
        allowed: Bools = np.zeros(400, dtype=bool)
        allowed[[3, 50, 399]] = True
        scores, rows = engine.search(views[:2], 10, allowed)
        assert set(rows[rows >= 0].tolist()) <= {3, 50, 399}
        assert (scores[rows < 0] == -np.inf).all()


def random_views(rng: np.random.Generator, count: int, dim: int) -> dict[str, Floats]:
    """Documents d0, d1, ... with 1 to 8 random views each, of norms from .1 to 10."""
    sizes = rng.integers(1, 9, count)
    norms = 10.0 ** rng.uniform(-1, 1, count)
    return {f"d{n}": (unit(rng.standard_normal((sizes[n], dim))) * norms[n]).astype(np.float32) for n in range(count)}


def unit(vectors: Any) -> Floats:
    """The vectors with length 1, float32."""
    wide = np.asarray(vectors, dtype=np.float64)
    units: Floats = (wide / np.linalg.norm(wide, axis=-1, keepdims=True)).astype(np.float32)
    return units
