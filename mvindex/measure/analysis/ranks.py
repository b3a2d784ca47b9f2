"""The documents that an analysis searches, in blocks that bound memory, and ranks by variants of their views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mvindex.ingest.views import kept_views
from mvindex.kernels.score import Aggregate, Scoring, decode
from mvindex.records import Bools, CountCallback, Floats, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedViews

# Views scored at once: 8 MB of scores for 512 questions.
_BLOCK_VIEWS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class ViewBlock:
    """Consecutive documents of a pool: position of the first, rows (r, d) float32, starts (m + 1,)."""

    first: int
    rows: Floats
    starts: Ints

    @property
    def slots(self) -> Ints:
        """Return the slot of each view, (r,)."""
        return np.arange(len(self.rows)) - np.repeat(self.starts[:-1], np.diff(self.starts))


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Live documents of an index, all or a sample: doc_rows (n,) int64, ascending; `of` is how many the index has."""

    views: MappedViews
    doc_rows: Ints
    of: int

    def __len__(self) -> int:
        return len(self.doc_rows)

    @property
    def counts(self) -> Ints:
        """Return the number of views of each document, (n,)."""
        return self.views.starts[self.doc_rows + 1] - self.views.starts[self.doc_rows]

    def positions(self, doc_rows: Ints) -> Ints:
        """Return the positions in the pool of these document rows, all of which are in it."""
        return np.searchsorted(self.doc_rows, doc_rows)

    def blocks(self) -> Iterator[ViewBlock]:
        """Yield all documents, in the same blocks at every call; raise DamagedIndex where a checksum does not match."""
        ends = np.cumsum(self.counts)
        begin = 0
        while begin < len(self):
            before = ends[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + _BLOCK_VIEWS, side="right")))
            yield self.block(begin, end)
            begin = end

    def block(self, begin: int, end: int) -> ViewBlock:
        """Return the documents at positions [begin, end)."""
        packed, starts = self.views.fetch(self.doc_rows[begin:end])
        return ViewBlock(begin, decode(packed), starts)


def choose_pool(snapshot: Snapshot, relevant: Ints, most: int, seed: int) -> Pool:
    """Return all live documents, or a sample of about `most`: the relevant rows, and others drawn uniformly."""
    live = np.flatnonzero(snapshot.alive)
    if len(live) <= most:
        return Pool(snapshot.views, live, len(live))
    relevant = np.unique(relevant)
    # `most` are drawn, so that enough are left without the relevant ones; no array of all the others is made.
    drawn = live[np.random.default_rng(seed).choice(len(live), size=most, replace=False)]
    others = drawn[~np.isin(drawn, relevant)][: max(most - len(relevant), 0)]
    return Pool(snapshot.views, np.sort(np.concatenate([relevant, others])), len(live))


@dataclass(frozen=True, slots=True)
class Subset:
    """Some of a document's views. choose: returns which views of a block belong to the variant, (r,) bool."""

    name: str
    choose: Callable[[ViewBlock], Bools]


@dataclass(frozen=True, slots=True)
class MeanView:
    """One vector per document, the mean of its views; is_unit: scaled to unit length, as the views are."""

    name: str
    is_unit: bool


Variant = Subset | MeanView


def all_views() -> Subset:
    """Return the variant of every view."""
    return Subset("all views", lambda block: np.ones(len(block.rows), dtype=bool))


def single_view(slot: int) -> Subset:
    """Return the variant of the view in that slot, as the document's only vector (CAMVR tables 2 and 7)."""
    return Subset(f"view {slot}", lambda block: block.slots == slot)


def most_different(num_views: int) -> Subset:
    """Return the variant of the num_views most different views of each document (see ranks_apart)."""
    return Subset(f"{num_views} views", lambda block: ranks_apart(block, num_views) < num_views)


def pruned(eps: float) -> Subset:
    """Return the variant without views that lie within eps of a view that stays (mvindex.ingest.views)."""
    return Subset(f"pruned {eps}", lambda block: kept_views(block.rows, block.starts, eps))


class Reduced:
    """The documents of a block reduced to a variant: their scores for queries, and their number of vectors."""

    def __init__(self, block: ViewBlock, variant: Variant) -> None:
        self._block, self._variant = block, variant
        self._means: Floats | None = None
        self._mask: Bools | None = None
        if isinstance(variant, MeanView):
            self._means = _means(block, variant.is_unit)
            self.num_vectors = len(self._means)
        else:
            self._mask = variant.choose(block)
            self.num_vectors = int(np.count_nonzero(self._mask))

    def scores(self, queries: Floats, view_scores: Floats, scoring: Scoring) -> Floats:
        """Return each document's score, (q, m) float32; -inf where the variant has none of its views.

        queries: (q, d); view_scores: (q, r), the scores of all views of the block.
        """
        if self._means is not None:
            return queries @ self._means.T
        if self._mask is None or self._mask.all():
            return document_scores(view_scores, self._block.starts, scoring)
        counts = np.add.reduceat(self._mask.astype(np.int64), self._block.starts[:-1])
        has_views = counts > 0
        scores = np.full((len(view_scores), len(counts)), -np.inf, dtype=np.float32)
        if has_views.any():
            starts = np.append(0, np.cumsum(counts[has_views]))
            scores[:, has_views] = document_scores(view_scores[:, self._mask], starts, scoring)
        return scores


def document_scores(view_scores: Floats, starts: Ints, scoring: Scoring) -> Floats:
    """Return document scores (q, m) float32 of view scores (q, r): the maximum, or DRPQ's softmax mean (eq. 4-6)."""
    best: Floats = np.maximum.reduceat(view_scores, starts[:-1], axis=1)
    if scoring.aggregate is Aggregate.MAX:
        return best
    gaps = view_scores - np.repeat(best, np.diff(starts), axis=1)
    weights = np.exp(gaps / np.float32(scoring.temperature))
    total = np.add.reduceat(weights, starts[:-1], axis=1)
    return np.asarray(best + np.add.reduceat(weights * gaps, starts[:-1], axis=1) / total, dtype=np.float32)


def ranks_apart(block: ViewBlock, most: int) -> Ints:
    """Return the rank (r,) of each view in the farthest-first order of its document; from `most` on all get `most`.

    The first view comes first; each next is the view whose nearest view among those taken is farthest away, on a tie
    the lower slot (Gonzalez 1985: within a factor of two of the best choice of as many centres).
    """
    ranks = np.full(len(block.rows), most, dtype=np.int64)
    counts = np.diff(block.starts)
    for number in np.unique(counts).tolist():
        first = block.starts[:-1][counts == number]
        rows = first[:, None] + np.arange(number)
        views = block.rows[rows]
        ranks[rows] = _ranks_of(views, min(most, number), most)
    return ranks


def _ranks_of(views: Floats, steps: int, rest: int) -> Ints:
    """Return the ranks (m, k) of the views (m, k, d) of documents that have k views each."""
    documents = np.arange(len(views))
    ranks = np.full(views.shape[:2], rest, dtype=np.int64)
    nearest = np.full(views.shape[:2], np.inf)
    taken = np.zeros(len(views), dtype=np.int64)
    for step in range(steps):
        ranks[documents, taken] = step
        gaps = views - views[documents, taken][:, None]
        nearest = np.minimum(nearest, np.einsum("mkd,mkd->mk", gaps, gaps))
        nearest[documents, taken] = -1.0
        taken = nearest.argmax(axis=1)
    return ranks


def _means(block: ViewBlock, is_unit: bool) -> Floats:
    counts = np.diff(block.starts)[:, None]
    means = np.add.reduceat(block.rows, block.starts[:-1], axis=0) / counts
    if is_unit:
        norms = np.linalg.norm(means, axis=1, keepdims=True)
        means = means / np.where(norms > 0, norms, 1)
    return means.astype(np.float32)


_QUERIES_AT_ONCE = 512
# Beyond every document: a variant that has no view of a relevant document does not find it.
NOT_FOUND = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class RelevantDocs:
    """Pairs of a question and a relevant document: question_rows (m,) int64, ascending, and positions in the pool."""

    question_rows: Ints
    positions: Ints


@dataclass(frozen=True, slots=True, eq=False)
class RankRequest:
    """Queries (q, d) float32, their relevant documents, and how documents are scored."""

    queries: Floats
    relevant: RelevantDocs
    scoring: Scoring


@dataclass(frozen=True, slots=True, eq=False)
class RankTable:
    """Ranks of q queries by v variants.

    Attributes:
        ranks: (q, v) int64 from 1, of the relevant document that the variant scores highest.
        positions: (q, v) int64, the position of that document in the pool; NOT_FOUND in both where there is none.
        vectors: (v,) int64, the number of vectors of the pool.

    """

    ranks: Ints
    positions: Ints
    vectors: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Targets:
    """The best relevant document so far by query and variant: scores (q, v) float32, and positions (q, v) int64."""

    scores: Floats
    positions: Ints

    def update(self, block: ViewBlock, batch: _Scored, relevant: RelevantDocs) -> None:
        """Take the relevant documents of this block where they score higher."""
        rows = relevant.question_rows
        is_here = (rows >= batch.rows.start) & (rows < batch.rows.stop)
        is_here &= relevant.positions >= block.first
        is_here &= relevant.positions < block.first + batch.scores.shape[1]
        rows, positions = rows[is_here], relevant.positions[is_here]
        scores = batch.scores[rows - batch.rows.start, positions - block.first]
        # The best comes last, of equals the first position: later assignments win.
        order = np.lexsort((-positions, scores))
        rows, positions, scores = rows[order], positions[order], scores[order]
        is_better = scores > self.scores[rows, batch.column]
        self.scores[rows[is_better], batch.column] = scores[is_better]
        self.positions[rows[is_better], batch.column] = positions[is_better]


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """Scores (q, m) of a block's documents for the queries in `rows`, by the variant number `column`."""

    rows: slice
    column: int
    scores: Floats


def count_ranks(pool: Pool, request: RankRequest, variants: Sequence[Variant], on_progress: CountCallback) -> RankTable:
    """Return the rank of each query's relevant document in the pool, by each variant; ties by position in the pool.

    Every document is scored twice, in the same blocks and so to the same bits: first to find the scores of the relevant
    documents, then to count the documents ahead of them. Memory: a block's scores, and q x v numbers. on_progress gets
    the documents done, in total twice the pool.
    """
    shape = (len(request.queries), len(variants))
    targets = _Targets(np.full(shape, -np.inf, dtype=np.float32), np.full(shape, NOT_FOUND, dtype=np.int64))
    vectors, ranks = np.zeros(len(variants), dtype=np.int64), np.ones(shape, dtype=np.int64)
    for block in pool.blocks():
        for batch in _score(block, [Reduced(block, variant) for variant in variants], request):
            targets.update(block, batch, request.relevant)
        on_progress(len(block.starts) - 1)
    for block in pool.blocks():
        reduced = [Reduced(block, variant) for variant in variants]
        vectors += [one.num_vectors for one in reduced]
        here = block.first + np.arange(len(block.starts) - 1)
        for batch in _score(block, reduced, request):
            at = (batch.rows, batch.column)
            target, position = targets.scores[at][:, None], targets.positions[at][:, None]
            is_ahead = (batch.scores > target) | ((batch.scores == target) & (here < position))
            ranks[at] += np.count_nonzero(is_ahead, axis=1)
        on_progress(len(block.starts) - 1)
    ranks[np.isneginf(targets.scores)] = NOT_FOUND
    return RankTable(ranks, targets.positions, vectors)


def _score(block: ViewBlock, reduced: Sequence[Reduced], request: RankRequest) -> Iterator[_Scored]:
    """Yield the scores of the block's documents for all queries, a batch at a time, by every variant."""
    for begin in range(0, len(request.queries), _QUERIES_AT_ONCE):
        queries = request.queries[begin : begin + _QUERIES_AT_ONCE]
        view_scores = queries @ block.rows.T
        for column, one in enumerate(reduced):
            scores = one.scores(queries, view_scores, request.scoring)
            yield _Scored(slice(begin, begin + len(queries)), column, scores)


_DRAWS = 2000


def recalls(ranks: Ints, cutoffs: Sequence[int]) -> dict[str, float]:
    """Return R@k by name: the share of ranks (q,) that are at most k."""
    return {f"R@{k}": float(np.mean(ranks <= k)) for k in cutoffs}


def rank_array(ranks: Sequence[int | None]) -> Ints:
    """Return ranks as an array, with NOT_FOUND for None."""
    return np.array([NOT_FOUND if rank is None else rank for rank in ranks], dtype=np.int64)


def intervals(ranks: Ints, cutoffs: Sequence[int], seed: int) -> dict[str, list[float]]:
    """Return the 95 % bootstrap interval of each R@k.

    A resample of q hits and misses with replacement has a binomial number of hits, which is drawn directly.
    """
    generator, number = np.random.default_rng(seed), len(ranks)
    bounds = {}
    for k in cutoffs:
        draws = generator.binomial(number, np.count_nonzero(ranks <= k) / number, _DRAWS) / number
        bounds[f"R@{k}"] = [float(value) for value in np.quantile(draws, [0.025, 0.975])]
    return bounds


def gain(ranks: Ints, others: Ints, k: int, seed: int) -> tuple[float, float, float]:
    """Return R@k of ranks minus that of others on the same questions, and its paired 95 % bootstrap interval."""
    gained, missed = (ranks <= k) & (others > k), (ranks > k) & (others <= k)
    number = len(ranks)
    won, lost = np.count_nonzero(gained) / number, np.count_nonzero(missed) / number
    draws = np.random.default_rng(seed).multinomial(number, [won, lost, max(0.0, 1 - won - lost)], _DRAWS)
    low, high = np.quantile((draws[:, 0] - draws[:, 1]) / number, [0.025, 0.975])
    return won - lost, float(low), float(high)
