"""The contract of lexical and hybrid search: wherever an index is stored, the results of an index in a directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mvindex.index import IndexProtocol
from mvindex.index.factory import create
from mvindex.records import Document, QueryGroup, SearchResult, Span

_COMMON = "the price of oil rose and rivers flow where old cities stand beside a harbour in winter".split()
# Of scripts that are searched by pairs of letters, with accents, numbers and codes.
_OTHERS = ["石油危機が始まった", "Crème", "naïve", "ISO-9660", "1973", "Łódź", "prices", "Straße"]


class HybridContract:
    """The promises of every index with a lexical side, beside an index in a directory with the same documents.

    dim: of the views. lexical: how texts are split.
    """

    dim = 16
    lexical = "english"
    num_documents, num_queries = 300, 200

    def open_index(self, tmp_path: Path) -> IndexProtocol:
        """Create an empty index of given vectors, with self.dim dims and terms of self.lexical."""
        raise NotImplementedError

    @pytest.fixture
    def rng(self) -> np.random.Generator:
        """Return a seeded generator."""
        return np.random.default_rng(23)

    @pytest.fixture
    def pair(self, tmp_path: Path) -> Iterator[tuple[IndexProtocol, IndexProtocol]]:
        """Yield the index under test, and an index in a directory; both are empty."""
        reference = create(tmp_path / "reference.mvx", dim=self.dim, lexical=self.lexical)
        with reference, self.open_index(tmp_path) as index:
            yield index, reference

    def add(
        self, pair: Sequence[IndexProtocol], rng: np.random.Generator, numbers: Sequence[int], *, version: int = 0
    ) -> None:
        """Add documents of these numbers to both, some of whose views stand for sentences of their text."""
        documents, views, spans = [], [], []
        for number in numbers:
            sentences = [sentence(rng) for _ in range(rng.integers(1, 5))]
            text = " ".join(sentences)
            ends = np.cumsum([len(each) + 1 for each in sentences]) - 1
            own: list[Span | None] = [
                (int(end) - len(each), int(end)) for each, end in zip(sentences, ends, strict=True)
            ]
            title = sentence(rng)[:20] if number % 3 else ""
            metadata = {"number": number, "version": version, "group": number % 7, "tags": [number % 2, "a"]}
            documents.append(Document(f"d{number}", text, title, metadata))
            views.append(rng.standard_normal((len(own), self.dim)).astype(np.float32))
            spans.append(own if number % 4 else [None] * len(own))
        for index in pair:
            index.add_views(documents, views, spans=spans)

    def check(self, pair: Sequence[IndexProtocol], rng: np.random.Generator, count: int, *only: dict[str, Any]) -> None:
        """Check that so many searches, of some options each, return the same from both."""
        index, reference = pair
        for number in range(count):
            options = (only or OPTIONS)[number % len(only or OPTIONS)]
            text = " ".join(rng.permutation(sentence(rng).split())[:6].tolist()) or "oil"
            vector = rng.standard_normal(self.dim).astype(np.float32)
            query: Any = text if options.get("mode") == "lexical" else vector
            asked = options if query is text else {"mode": "hybrid", "text": text, **options}
            found, wanted = index.search(query, **asked), reference.search(query, **asked)
            assert_alike(found, wanted, f"{text!r} {asked}")

    def test_200_queries_have_the_same_lists_scores_and_citations(
        self, pair: tuple[IndexProtocol, IndexProtocol], rng: np.random.Generator
    ) -> None:
        self.add(pair, rng, range(self.num_documents))
        self.check(pair, rng, self.num_queries)

    def test_deletions_updates_and_replacements_are_counted(
        self, pair: tuple[IndexProtocol, IndexProtocol], rng: np.random.Generator
    ) -> None:
        self.add(pair, rng, range(120))
        gone = [f"d{number}" for number in range(0, 120, 3)]
        assert [index.delete(ids=gone) for index in pair] == [40, 40]
        self.check(pair, rng, 12)
        self.add(pair, rng, range(1, 120, 4), version=1)
        self.check(pair, rng, 12)
        for index in pair:
            index.update("d1", metadata={"group": 3})
            assert index.delete(filter={"group": 5}) > 0
        self.add(pair, rng, [0, 6, 200], version=2)
        self.check(pair, rng, 12)
        for index in pair:
            index.delete(all=True)
            assert not index.search("oil", mode="lexical").hits
        self.add(pair, rng, range(20), version=3)
        self.check(pair, rng, 12)

    def test_one_document_at_a_time_is_counted_as_many_at_once_are(
        self, pair: tuple[IndexProtocol, IndexProtocol], rng: np.random.Generator
    ) -> None:
        for number in range(20):
            self.add(pair, rng, [number % 15], version=number // 15)
        self.check(pair, rng, 12)

    @pytest.mark.parametrize("combine", ["max", "sum", "mean"])
    def test_a_query_group_has_the_same_list(
        self, pair: tuple[IndexProtocol, IndexProtocol], rng: np.random.Generator, combine: str
    ) -> None:
        self.add(pair, rng, range(80))
        index, reference = pair
        for options in ({}, {"filter": {"group": {"lt": 4}}}, {"scoring": "drpq"}, {"top_k": 100}):
            group = QueryGroup(rng.standard_normal((3, self.dim)).astype(np.float32), combine)
            asked: dict[str, Any] = {"mode": "hybrid", "text": sentence(rng), **options}
            assert_alike(index.search(group, **asked), reference.search(group, **asked), f"{combine} {asked}")

    def test_a_batch_has_what_each_query_has(
        self, pair: tuple[IndexProtocol, IndexProtocol], rng: np.random.Generator
    ) -> None:
        self.add(pair, rng, range(80))
        index, reference = pair
        vectors = rng.standard_normal((9, self.dim)).astype(np.float32)
        texts = [sentence(rng) for _ in vectors]
        found = index.search(vectors, text=texts, mode="hybrid")
        for one, other in zip(found, reference.search(vectors, text=texts, mode="hybrid"), strict=True):
            assert_alike(one, other, "a batch")

    def test_confidences_are_the_same(
        self, pair: tuple[IndexProtocol, IndexProtocol], rng: np.random.Generator
    ) -> None:
        self.add(pair, rng, range(30))
        if not all(hasattr(getattr(index, "admin", None), "tune_confidence") for index in pair):
            pytest.skip("a server fits nothing for its callers")
        vectors = rng.standard_normal((24, self.dim)).astype(np.float32)
        texts = [sentence(rng) or "oil" for _ in vectors]
        relevant = [{index.search(vector, 1)[0].id: 1.0} for vector in vectors for index in pair[:1]]
        reports = [index.admin.tune_confidence(texts, relevant, vectors=vectors) for index in pair]  # type: ignore[attr-defined]
        assert reports[0] == reports[1]
        for mode in ("dense", "hybrid", "lexical"):
            query: Any = texts[0] if mode == "lexical" else vectors[0]
            asked: dict[str, Any] = {"mode": mode} | ({"text": texts[0]} if mode == "hybrid" else {})
            found, wanted = (index.search(query, 5, **asked) for index in pair)
            assert [hit.confidence for hit in found] == [hit.confidence for hit in wanted], mode
            assert all(hit.confidence is not None for hit in found), mode
            least = max(hit.confidence or 0.0 for hit in wanted)
            kept = [index.search(query, 5, min_confidence=least, **asked) for index in pair]
            assert kept[0].hits == kept[1].hits != () and [each.below_confidence > 0 for each in kept] == [
                True,
                True,
            ], mode

    def test_equal_documents_come_by_ordinal(
        self, pair: tuple[IndexProtocol, IndexProtocol], rng: np.random.Generator
    ) -> None:
        for index in pair:
            documents = [Document(f"d{number}", "the price of oil") for number in range(300)]
            index.add_views(documents, np.ones((300, 1, self.dim), dtype=np.float32))
        index, reference = pair
        for top_k in (1, 10, 299, 400):
            for mode in ("lexical", "hybrid"):
                asked: dict[str, Any] = {"mode": mode, "text": "oil", "top_k": top_k}
                query = np.ones(self.dim, dtype=np.float32)
                assert_alike(index.search(query, **asked), reference.search(query, **asked), f"{mode} {top_k}")

    def test_operators_demand_and_exclude_the_same(
        self, pair: tuple[IndexProtocol, IndexProtocol], rng: np.random.Generator
    ) -> None:
        self.add(pair, rng, range(80))
        index, reference = pair
        query = rng.standard_normal(self.dim).astype(np.float32)
        for text in (
            '"old cities" oil',
            "+1973 oil prices",
            "-oil rivers",
            '-"the price" +石油 winter',
            "+nowhere oil",
        ):
            for options in ({"mode": "lexical"}, {"mode": "hybrid"}, {"filter": {"group": {"in": [1, 2, 3]}}}):
                asked: dict[str, Any] = {"text": text, "mode": "hybrid", "operators": True, "top_k": 30, **options}
                assert_alike(index.search(query, **asked), reference.search(query, **asked), f"{text} {options}")

    def test_a_question_of_no_known_term_has_the_dense_order(
        self, pair: tuple[IndexProtocol, IndexProtocol], rng: np.random.Generator
    ) -> None:
        self.add(pair, rng, range(30))
        index, reference = pair
        for text in ("xyzzy", "!!", "xyzzy oil"):
            query = rng.standard_normal(self.dim).astype(np.float32)
            for mode in ("lexical", "hybrid"):
                found, wanted = (each.search(query, text=text, mode=mode) for each in (index, reference))
                assert_alike(found, wanted, f"{text} {mode}")


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"mode": "lexical"},
    {"exact": True},
    {"scoring": "drpq", "temperature": 0.2},
    {"filter": {"group": {"lt": 3}}},
    {"mode": "lexical", "filter": {"tags": {"contains": 1}}, "top_k": 40},
    {"fusion": "rrf", "top_k": 20},
    {"fusion": "minmax", "weights": (1, 3)},
    {"filter": {"id": {"in": ["d1", "d2", "d5", "none"]}}},
    {"mode": "lexical", "top_k": 1},
    {"top_k": 250},
    {"filter": {"not": {"number": {"gte": 10}}}, "exact": True, "scoring": "drpq"},
)


def sentence(rng: np.random.Generator) -> str:
    """Return a sentence of 2 to 12 words, common ones more often."""
    size = int(rng.integers(2, 13))
    places = np.minimum(rng.zipf(1.4, size) - 1, len(_COMMON) - 1)
    words = [_COMMON[place] for place in places.tolist()]
    for place in np.flatnonzero(rng.random(size) < 0.1).tolist():
        words[place] = _OTHERS[int(rng.integers(len(_OTHERS)))]
    return " ".join(words).capitalize() + "."


def assert_alike(found: SearchResult, wanted: SearchResult, what: str) -> None:
    """Assert that two results are equal: hits with scores and components in order, citations, and what they promise."""
    assert found.hits == wanted.hits, what
    assert [hit.citation for hit in found.hits] == [hit.citation for hit in wanted.hits], what
    assert (found.exact, found.short_by, found.mode) == (wanted.exact, wanted.short_by, wanted.mode), what
