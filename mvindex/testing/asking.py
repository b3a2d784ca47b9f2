"""The contract of more that a caller may ask of any index, and the plain truth of document scores in plain loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from mvindex.corpus.text.citation import about_tokens
from mvindex.errors import CursorExpired, NotCalibrated, QueryError
from mvindex.index import IndexProtocol
from mvindex.records import Document, Doubles, Floats, Ints, QueryGroup, SearchResult

_LANES = 32


class TrueScores(NamedTuple):
    """Scores of documents for one query: scores (n,) float32, slots (n,) of their best views.

    unrounded: (n,) float64, the scores before they are rounded to float32.
    """

    scores: Floats
    slots: Ints
    unrounded: Doubles


def brute_force(  # noqa: PLR0913 - the parameters of a search and of its index
    views: Mapping[str, Floats],
    query: Floats,
    top_k: int,
    ordinals: Mapping[str, int] | None = None,
    *,
    scoring: str = "max",
    temperature: float = 1.0,
    dtype: str = "fp16",
) -> list[tuple[str, np.float32, int]]:
    """Return (id, score, slot) of the top_k documents by scoring every one. dtype: of the views, fp16 or fp32."""
    if not views:
        return []
    stored = [rows.astype(np.float16 if dtype == "fp16" else np.float32) for rows in views.values()]
    starts = np.cumsum([0, *map(len, stored)])
    [found] = true_scores(np.concatenate(stored), starts, query[None], temperature if scoring == "drpq" else None)
    places = [ordinals[doc_id] if ordinals else position for position, doc_id in enumerate(views)]
    columns = zip(-found.scores, places, views, found.slots.tolist(), strict=True)
    return [(doc_id, -score, slot) for score, _, doc_id, slot in sorted(columns)[:top_k]]


def brute_force_group(
    views: Mapping[str, Floats], group: QueryGroup, *, scoring: str = "max", temperature: float = 1.0
) -> list[tuple[str, np.float32, int]]:
    """Return (id, score, slot) of all documents by their combined scores; the slot is that of the best query."""
    own = [
        {doc_id: (score, slot) for doc_id, score, slot in found}
        for found in (
            brute_force(views, query, len(views), scoring=scoring, temperature=temperature)
            for query in np.asarray(group.queries)
        )
    ]
    rows = []
    for place, doc_id in enumerate(views):
        scores = [float(each[doc_id][0]) for each in own]
        combined = max(scores) if group.combine == "max" else sum(scores)
        combined = combined / len(scores) if group.combine == "mean" else combined
        rows.append((-np.float32(combined), place, doc_id, own[scores.index(max(scores))][doc_id][1]))
    return [(doc_id, -score, slot) for score, _, doc_id, slot in sorted(rows)]


def true_scores(
    stored: npt.NDArray[Any], starts: Ints, queries: Floats, temperature: float | None = None
) -> list[TrueScores]:
    """Return the scores for each query, (q, d) float32, by best view, or by DRPQ's mean at a temperature.

    stored: (r, d) fp16 or fp32, document i owns rows starts[i]:starts[i + 1]. Zero is 0.0.
    """
    rows = stored.astype(np.float64)
    return [_scores(_sums(rows, query.astype(np.float64)), starts, temperature) for query in queries]


def _sums(rows: Doubles, query: Doubles) -> Doubles:
    """Add element i to partial sum i % 32, then the upper half of the sums to the lower, until one is left."""
    lanes = np.zeros((_LANES, len(rows)))
    for element, factor in enumerate(query):
        lanes[element % _LANES] += rows[:, element] * factor
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    sums: Doubles = lanes[0]
    return sums


def _scores(sums: Doubles, starts: Ints, temperature: float | None) -> TrueScores:
    rounded = sums.astype(np.float32) + np.float32(0)
    ranges = list(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))
    slots = np.array([rounded[begin:end].argmax() for begin, end in ranges])
    best, unrounded = rounded[starts[:-1] + slots], np.maximum.reduceat(sums, starts[:-1])
    if temperature is None:
        return TrueScores(best, slots, unrounded)
    unrounded = np.array([_soft_mean(np.sort(sums[begin:end])[::-1], temperature) for begin, end in ranges])
    return TrueScores(np.minimum(unrounded.astype(np.float32) + np.float32(0), best), slots, unrounded)


def _soft_mean(falling: Doubles, temperature: float) -> float:
    """Return DRPQ eq. 4-6 of the sums of one document, added from the best to the worst."""
    gaps = falling[0] - falling
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp(-gaps / temperature)
    loss = total = 0.0
    for weight, gap in zip(weights.tolist(), gaps.tolist(), strict=True):
        loss += weight * gap
        total += weight
    return float(falling[0]) - loss / total


def assert_same(result: SearchResult, expected: Sequence[tuple[str, np.float32, int]]) -> None:
    """Assert that ids, order and scores are those expected, and that the result is complete."""
    assert result.short_by == 0
    assert [hit.id for hit in result.hits] == [row[0] for row in expected]
    assert [np.float32(hit.score) for hit in result.hits] == [row[1] for row in expected]
    assert [hit.slot for hit in result.hits] == [row[2] for row in expected]


class AskingContract:
    """The part of IndexContract about pages, documents in place of a query, several citations, and diversity."""

    dim = 16
    is_exact = True

    def fill(
        self, index: IndexProtocol, views: Mapping[str, Floats], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Add one document per entry, whose text is its id."""
        raise NotImplementedError

    def fill_at_random(self, index: IndexProtocol, rng: np.random.Generator, count: int) -> dict[str, Floats]:
        """Add documents d0, d1, ... of three random views, with their number as metadata, and return the views."""
        views = {f"d{n}": unit_rows(rng.standard_normal((3, self.dim))) for n in range(count)}
        self.fill(index, views, {doc_id: {"number": number} for number, doc_id in enumerate(views)})
        return views

    @pytest.mark.parametrize(
        "options", [{}, {"scoring": "drpq", "temperature": 0.3}, {"filter": {"number": {"lt": 40}}}], ids=str
    )
    def test_pages_are_slices_of_one_ranking(
        self, index: IndexProtocol, rng: np.random.Generator, options: dict[str, Any]
    ) -> None:
        self.fill_at_random(index, rng, 60)
        queries = rng.standard_normal((3, self.dim)).astype(np.float32)
        for query in (queries[0], QueryGroup(queries)):
            whole = index.search(query, 100, exact=True, **options)
            for size in (7, 100):
                pages = [index.search(query, size, offset=at, exact=True, **options) for at in range(0, 100, size)]
                assert [hit for page in pages for hit in page] == list(whole)
                assert all(page.exact and page.short_by == 0 and page.next is None for page in pages)
            beyond = index.search(query, 10, offset=9000, exact=True, **options)
            assert (beyond.hits, beyond.exact, beyond.short_by) == ((), True, 0)
        several = index.search(queries, 5, offset=3, exact=True, **options)
        assert several == [index.search(query, 5, offset=3, exact=True, **options) for query in queries]

    def test_a_cursor_shows_every_document_once(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        self.fill_at_random(index, rng, 30)
        query = rng.standard_normal(self.dim).astype(np.float32)
        # Approximate ones too: of what another page finds, nothing comes twice.
        shown = [hit.id for page in pages_of(index, query, 7) for hit in page]
        assert sorted(shown) == sorted(f"d{n}" for n in range(30))
        whole = [hit.id for hit in index.search(query, 30, exact=True)]
        assert [hit.id for page in pages_of(index, query, 7, exact=True) for hit in page] == whole

    def test_a_cursor_goes_on_over_writes_without_repeats(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        views = self.fill_at_random(index, rng, 30)
        query = rng.standard_normal(self.dim).astype(np.float32)
        first = index.search(query, 10, cursor="", exact=True)
        ranking = [hit.id for hit in index.search(query, 30, exact=True)]
        index.delete(ids=[ranking[3], ranking[12]])
        # The best of all now, and one that was shown and now is the last.
        best, worst = unit_rows(query[None]), -unit_rows(query[None])
        index.add_views([Document("new", "text"), Document(ranking[0], "text")], [best, worst])
        rest: list[str] = []
        cursor = first.next
        while cursor is not None:
            page = index.search(query, 10, cursor=cursor, exact=True)
            rest, cursor = rest + [hit.id for hit in page], page.next
        assert sorted(rest) == sorted(["new", *ranking[10:12], *ranking[13:]])
        assert set(views) - {hit.id for hit in first} - set(rest) == {ranking[12]}

    def test_a_cursor_of_another_search_has_expired(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        self.fill_at_random(index, rng, 20)
        query, other = rng.standard_normal((2, self.dim)).astype(np.float32)
        cursor = index.search(query, 5, cursor="").next
        assert cursor is not None
        assert index.search(query, 2, cursor=cursor).hits[0] == index.search(query, 5, cursor=cursor).hits[0]
        for changed, options in ((other, {}), (query, {"filter": {"number": {"gt": 1}}}), (query, {"scoring": "drpq"})):
            with pytest.raises(CursorExpired, match="another query"):
                index.search(changed, 5, cursor=cursor, **options)
        with pytest.raises(QueryError, match="one query"):
            index.search(np.stack([query, other]), 5, cursor=cursor)
        cursor = index.search(query, 5, text="oil", mode="dense", cursor="").next
        for changed, text in ((other, "oil"), (query, "gas")):
            with pytest.raises(CursorExpired, match="another query"):
                index.search(changed, 5, text=text, mode="dense", cursor=cursor)
        results = index.search(np.stack([query, other]), 5, cursor="")
        assert [index.search(one, 5, cursor=each.next) for one, each in zip((query, other), results, strict=True)] == [
            pages_of(index, one, 5)[1] for one in (query, other)
        ]

    def test_a_wrong_page_is_refused(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        self.fill_at_random(index, rng, 5)
        query = rng.standard_normal(self.dim).astype(np.float32)
        for offset in (-1, 1.5, True, "2", None):
            with pytest.raises(QueryError, match="offset"):
                index.search(query, offset=offset)  # type: ignore[arg-type]  # wrong on purpose
        for cursor in ("AAAA", "no cursor", "\u00e9", 7):
            with pytest.raises(QueryError, match="cursor: expected"):
                index.search(query, cursor=cursor)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(QueryError, match="give one of them"):
            index.search(query, offset=1, cursor="")

    @pytest.mark.parametrize("scoring", [{}, {"scoring": "drpq", "temperature": 0.3}], ids=["max", "drpq"])
    def test_more_like_documents_is_the_brute_force_ranking_without_them(
        self, index: IndexProtocol, rng: np.random.Generator, scoring: dict[str, Any]
    ) -> None:
        views = self.fill_at_random(index, rng, 80)
        near, far = ["d3", "d50"], ["d7", "d8"]
        # Views stand for a query as they are stored, in fp16.
        stored = {doc_id: own.astype(np.float16).astype(np.float32) for doc_id, own in views.items()}
        group = QueryGroup(np.concatenate([stored[doc_id] for doc_id in near]))
        left = {doc_id: own for doc_id, own in views.items() if doc_id not in (*near, *far)}
        truth = brute_force_group(left, group, **scoring)
        against = QueryGroup(np.concatenate([stored[doc_id] for doc_id in far]))
        other = {doc_id: score for doc_id, score, _ in brute_force_group(left, against, **scoring)}
        nearer = [row for row in truth if row[1] > other[row[0]]]
        assert self.dim == 1 or 0 < len(nearer) < len(truth)
        options = {"exact": True, **scoring}
        for top_k in (5, 80):
            assert_same(index.search(top_k=top_k, positives=near, negatives=far, **options), nearer[:top_k])
        assert_same(index.search(top_k=10, offset=3, positives=near, negatives=far, **options), nearer[3:13])
        without = brute_force_group(
            {doc_id: own for doc_id, own in views.items() if doc_id not in near}, group, **scoring
        )
        assert_same(index.search(top_k=20, positives=near, **options), without[:20])
        low = {"number": {"lt": 20}}
        few = [row for row in nearer if int(row[0][1:]) < 20]
        assert_same(index.search(None, 80, low, positives=near, negatives=far, **options), few)
        one = index.search(top_k=7, like="d3", **options)
        assert one == index.search(top_k=7, positives=["d3", "d3"], **options) and "d3" not in {hit.id for hit in one}
        pages = [index.search(top_k=7, like="d3", cursor="", **options)]
        pages.append(index.search(top_k=7, like="d3", cursor=pages[0].next, **options))
        whole = index.search(top_k=14, like="d3", **options)
        assert [hit for page in pages for hit in page] == list(whole)

    def test_documents_that_cannot_stand_for_a_query_are_named(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        self.fill_at_random(index, rng, 5)
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"like": "none"}, "there is no document 'none'"),
            ({"positives": ["d1"], "negatives": ["d2", "gone"]}, "there is no document 'gone'"),
            ({"negatives": ["d2"]}, "negatives= belongs to positives="),
            ({"positives": ["d1"], "negatives": ["d1"]}, "got 'd1' in both"),
            ({"positives": "d1"}, "expected a sequence of ids"),
            ({"like": "d1", "positives": ["d2"]}, "give one of them"),
            ({"positives": [f"x{n}" for n in range(101)]}, "up to 100 ids"),
            ({"like": "d1", "mode": "lexical"}, "mode='dense'"),
            ({"like": "d1", "text": "a text"}, "stand for the query"),
            ({"like": "d1", "rerank": lambda query, hits: [0] * len(hits)}, "rerank= reads a question"),
            ({"positives": ["d1"], "negatives": ["d2"], "cursor": ""}, "cursor= does not go with negatives="),
            ({}, "query: expected a text, a vector or a query group"),
        ]
        for options, message in wrong:
            with pytest.raises(QueryError, match=message):
                index.search(**options)
        with pytest.raises(QueryError, match="stand for the query"):
            index.search(np.ones(self.dim), like="d1")

    def test_hits_have_several_citations_where_they_are_asked_for(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        text = "Cats sleep. Dogs bark at night. Rain fell in May. Dogs also bark at cats. Nothing else happened."
        documents = [Document("d0", text, metadata={"line": 3}), Document("d1", "Dogs bark. Dogs bark.")]
        index.add_views(documents, list(unit_rows(rng.standard_normal((2, 2, self.dim)))))
        query, question = rng.standard_normal(self.dim).astype(np.float32), "when do dogs bark"
        assert all(hit.citations == () for hit in index.search(query, text=question))
        assert all(hit.citations == () for hit in index.search(query, citations=2))
        found = {hit.id: hit for hit in index.search(query, text=question, citations=3)}
        several = found["d0"].citations
        assert several[0] == found["d0"].citation and len({each.text for each in several}) == len(several) == 3
        assert {several[0].text, several[1].text} == {"Dogs bark at night.", "Dogs also bark at cats."}
        assert several[1].score >= several[2].score and all(
            text[each.start : each.end] == each.text for each in several
        )
        assert all(each.line == 3 and not each.before + each.after for each in several)
        # What is said twice is quoted once.
        assert [each.text for each in found["d1"].citations] == ["Dogs bark."]
        [hit, _] = sorted(index.search(query, text=question, citations=1, context=1), key=lambda hit: hit.id)
        [one] = hit.citations
        assert text[one.start - len(one.before) : one.end + len(one.after)] == f"{one.before}{one.text}{one.after}"
        assert f"{one.before}{one.text}{one.after}" in (
            "Cats sleep. Dogs bark at night. Rain fell in May.",
            "Rain fell in May. Dogs also bark at cats. Nothing else happened.",
        )
        short = index.search(query, text=question, citations=9, context=2, max_chars=40).hits
        sizes = [sum(len(each.before + each.text + each.after) for each in hit.citations) for hit in short]
        assert max(sizes) <= 40 and min(sizes) > 0
        short = index.search(query, text=question, citations=9, context=2, max_tokens=12).hits
        counts = [sum(about_tokens(each.before + each.text + each.after) for each in hit.citations) for hit in short]
        assert max(counts) <= 12 and min(counts) > 0
        wrong: list[tuple[str, Any]] = [("citations", 0), ("citations", 51), ("context", -1), ("context", 21)]
        for name, value in [*wrong, ("max_chars", 0), ("max_tokens", 0)]:
            options: dict[str, Any] = {name: value}
            with pytest.raises(QueryError, match=name):
                index.search(query, text=question, **options)
        with pytest.raises(QueryError, match="expected 'text' in fields"):
            index.search(query, text=question, citations=2, fields=["title"])

    @pytest.mark.parametrize("diversity", [0, 0.3, 1])
    def test_diverse_documents_are_those_that_a_slow_function_chooses(
        self, index: IndexProtocol, rng: np.random.Generator, diversity: float
    ) -> None:
        views = {f"d{n}": unit_rows(rng.standard_normal((3, self.dim))) for n in range(30)}
        views |= {f"e{n}": views[f"d{n}"][::-1] for n in (2, 3)}  # the same views in another order
        self.fill(index, views)
        query = rng.standard_normal(self.dim).astype(np.float32)
        whole = index.search(query, 100, exact=True)
        units = {doc_id: unit_rows(own.astype(np.float16).astype(np.float64)) for doc_id, own in views.items()}
        order, duplicates = slow_diverse(whole, units, diversity)
        found = index.search(query, 40, exact=True, diversity=diversity)
        assert dict(found.duplicates_of) == duplicates
        assert self.dim == 1 or set(duplicates) == {max(pair, key=[hit.id for hit in whole].index) for pair in TWINS}
        if self.dim > 1:  # of one dimension all views are alike
            assert [hit.id for hit in found] == order and (found.exact, found.short_by) == (True, 0)
        assert {hit.id: hit.score for hit in found} == {hit.id: hit.score for hit in whole}
        pages = [index.search(query, 9, offset=at, exact=True, diversity=diversity) for at in range(0, 40, 9)]
        assert [hit for page in pages for hit in page] == list(found)
        assert index.search(query[None], 5, exact=True, diversity=diversity)[0].hits == found[:5]

    def test_a_wrong_diversity_is_refused(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        self.fill_at_random(index, rng, 5)
        query = rng.standard_normal(self.dim).astype(np.float32)
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"diversity": 1.5}, "from 0 to 1"),
            ({"diversity": True}, "from 0 to 1"),
            ({"diversity": 0.5, "top_k": 101}, "up to 100 together, got 101"),
            ({"diversity": 0.5, "offset": 95}, "up to 100 together, got 105"),
            ({"diversity": 0.5, "cursor": ""}, "cursor= does not go with diversity="),
            (
                {"diversity": 0.5, "text": "x", "rerank": lambda query, hits: [0] * len(hits)},
                "does not go with rerank=",
            ),
        ]
        for options, message in wrong:
            with pytest.raises(QueryError, match=message):
                index.search(query, **options)
        assert index.search(query, diversity=0.5, filter={"number": {"gt": 99}}).hits == ()

    def test_vectors_have_no_confidence_without_a_calibration(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        self.fill_at_random(index, rng, 5)
        query = rng.standard_normal(self.dim).astype(np.float32)
        found = index.search(query)
        assert [hit.confidence for hit in found] == [None] * 5 and found.below_confidence == 0
        with pytest.raises(NotCalibrated, match="tune --confidence"):
            index.search(query, min_confidence=0.5)
        for wrong in (-0.1, 1.5, True, "half", np.nan):
            options: dict[str, Any] = {"min_confidence": wrong}
            with pytest.raises(QueryError, match="min_confidence: expected a number from 0 to 1"):
                index.search(query, **options)


TWINS = (("d2", "e2"), ("d3", "e3"))


def slow_diverse(
    whole: SearchResult, units: Mapping[str, Floats], diversity: float
) -> tuple[list[str], dict[str, str]]:
    """Return ids in the order of maximal marginal relevance, and the original of each near-duplicate, by definition."""

    def has_like(one: str, other: str) -> bool:
        return all(max(float(row @ mate) for mate in units[other]) >= 0.98 for row in units[one])

    duplicates: dict[str, str] = {}
    ids = [hit.id for hit in whole]
    for place, doc_id in enumerate(ids):
        for other in ids[:place]:
            if other not in duplicates and has_like(doc_id, other) and has_like(other, doc_id):
                duplicates[doc_id] = other
                break
    best, worst = whole[0].score, whole[len(ids) - 1].score
    relevance = {hit.id: (hit.score - worst) / (best - worst) if best > worst else 1.0 for hit in whole}
    winner = {hit.id: units[hit.id][hit.slot] for hit in whole}
    left = [doc_id for doc_id in ids if doc_id not in duplicates]
    order: list[str] = []
    while left:
        worths = [
            (1 - diversity) * relevance[doc_id]
            - (diversity * max(float(winner[doc_id] @ winner[other]) for other in order) if order else 0)
            for doc_id in left
        ]
        order.append(left.pop(worths.index(max(worths))))
    return order + [doc_id for doc_id in ids if doc_id in duplicates], duplicates


def pages_of(index: IndexProtocol, query: Any, size: int, **options: Any) -> list[SearchResult]:
    """Return all pages of a query, by its cursors."""
    pages = [index.search(query, size, cursor="", **options)]
    while pages[-1].next is not None:
        pages.append(index.search(query, size, cursor=pages[-1].next, **options))
    return pages


def unit_rows(rows: Any) -> Floats:
    """Return rows, (r, d), of length 1, as float32."""
    scaled: Floats = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)
    return scaled
