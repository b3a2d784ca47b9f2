"""How many near-duplicate views an engine can do without under a budget of recall: `mvindex tune --prune-budget`.

Leaving views out only lowers scores by best view. So of a question's exact top k, a document is still among the first k
of the views that are kept when fewer than k of a deeper exact ranking score above it then, and it itself does not fall
below that ranking's end: no document beyond the end can have risen. What falls below counts as lost, so the recall is a
lower bound for the order of the kept views alone. An engine looks deeper than that and scores all stored views of what
it finds: its own loss by the views left out is smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mvindex.errors import ConfigError
from mvindex.ingest.prune import kept_views, nearest_before
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.scoring.aggregate import Scoring
from mvindex.search import Part, Ranking, owners, search_parts
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import decode
from mvindex.tuning.queries import drawn_queries

# Documents whose views tell the distances to try, and the shares of views that are left out.
_SAMPLED_DOCUMENTS = 4096
# The exact ranking is looked at so many times as deep as the answer.
_DEPTH = 4
# Shares of the views that the distances which are tried would leave out at most.
_SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7)
# Queries ranked at once.
_BATCH = 16
_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePoint:
    """What leaving out views within a distance gives. kept: the share of views that stay, of a sample of documents.

    recall: share of the exact top_k documents that are among the top_k by the kept views at least, mean over queries.
    """

    prune_views: float
    kept: float
    recall: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """The distances that were tried, rising; chosen: the largest within the budget, None where the least costs more."""

    top_k: int
    budget: float
    queries: int
    are_own_views: bool
    points: tuple[PrunePoint, ...]
    chosen: PrunePoint | None


def checked_budget(value: object) -> float:
    """The budget as a float; ConfigError when it is no share of recall that one could give away."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1:
        return float(value)
    raise ConfigError(f"prune budget is {value!r:.40}; wanted a share of recall from 0 up to below 1, such as 0.005")


class PruneTrial:
    """The exact answers to a set of queries, and what is left of them where views are left out."""

    def __init__(self, parts: Sequence[Part], queries: Floats) -> None:
        """parts: the stores, and what is asked for; queries: (q, d) float32. ConfigError when there is nothing."""
        if not len(queries):
            raise ConfigError("choosing how many views to prune needs a query and a document at least")
        self._parts, self._queries, self._top_k = parts, queries, parts[0].request.top_k
        self._sample = [_sampled_views(part.snapshot, sum(p.snapshot.num_documents for p in parts)) for part in parts]

    def distances(self) -> list[float]:
        """The distances that are worth a try, rising: at each, a given share of sampled views has a near one before."""
        nearest = np.concatenate([nearest_before(rows, starts) for rows, starts in self._sample])
        found = np.quantile(nearest, _SHARES, method="lower")
        # A document's first view has none before it.
        within = found[np.isfinite(found)]
        # Three digits, rounded down.
        digits = 10 ** (2 - np.floor(np.log10(np.maximum(within, 1e-6))))
        return sorted({float(f"{value:.6g}") for value in np.floor(within * digits) / digits})

    def run(self, on_progress: Callable[[str, int, int], None]) -> list[PrunePoint]:
        """A point for each distance."""
        tried = self.distances()
        if not tried:
            return []
        deep = [_deeper(part) for part in self._parts]
        found = np.zeros(len(tried))
        for begin in range(0, len(self._queries), _BATCH):
            batch = self._queries[begin : begin + _BATCH]
            for query, ranking in zip(batch, search_parts(deep, batch), strict=True):
                found += self._still_found(query, ranking, tried)
            on_progress("leaving views out", min(begin + _BATCH, len(self._queries)), len(self._queries))
        shares = found / len(self._queries)
        return [
            PrunePoint(prune_views=eps, kept=self._kept_share(eps), recall=float(share))
            for eps, share in zip(tried, shares, strict=True)
        ]

    def _kept_share(self, eps: float) -> float:
        kept = [kept_views(rows, starts, eps) for rows, starts in self._sample]
        return float(np.concatenate(kept).mean())

    def _still_found(self, query: Floats, ranking: Ranking, tried: Sequence[float]) -> Doubles:
        """The share of a query's top_k that the kept views find for certain, for each of the distances, (t,)."""
        wanted = min(self._top_k, len(ranking.rows))
        if not wanted:
            return np.ones(len(tried))
        scores = np.empty((len(tried), len(ranking.rows)), dtype=np.float32)
        for places, rows, starts in self._views_of(ranking.rows):
            products = decode(rows) @ query
            for number, eps in enumerate(tried):
                left = np.where(kept_views(rows, starts, eps), products, -np.inf)
                scores[number, places] = np.maximum.reduceat(left, starts[:-1])
        # Beyond the ranking no document scores more than its last one, if there is any beyond.
        is_all = len(ranking.rows) < _DEPTH * self._top_k
        end = -np.inf if is_all else float(ranking.scores[-1])
        return np.array([_found_share(row, wanted, end) for row in scores])

    def _views_of(self, rows: Ints) -> Iterator[tuple[Ints, npt.NDArray[np.floating], Ints]]:
        """Of each part that holds some of the documents: their places in rows, their views, and where these start."""
        which, local = owners(self._parts, rows)
        for number, part in enumerate(self._parts):
            places = np.flatnonzero(which == number)
            if len(places):
                yield places, *part.snapshot.views.fetch(local[places])


def tune_pruning(
    parts: Sequence[Part], given: Floats | None, budget: float, on_progress: Callable[[str, int, int], None]
) -> PruneReport:
    """What leaving views out of the parts' engines would cost. given: queries, (q, d) float32; None: own views."""
    queries = drawn_queries(parts, given)
    points = PruneTrial(parts, queries).run(on_progress)
    return PruneReport(
        top_k=parts[0].request.top_k,
        budget=budget,
        queries=len(queries),
        are_own_views=given is None,
        points=tuple(points),
        chosen=choose_pruning(points, budget),
    )


def choose_pruning(points: Sequence[PrunePoint], budget: float) -> PrunePoint | None:
    """The point that keeps the fewest views, of those that cost no more recall than the budget."""
    allowed = [point for point in points if point.recall >= 1 - budget]
    return min(allowed, key=lambda point: (point.kept, -point.recall), default=None)


def _found_share(scores: Floats, wanted: int, end: float) -> float:
    """The share of the first `wanted` documents that are still so, by scores lower than or as before, (m,)."""
    bar = float(np.sort(scores)[-wanted])
    is_found: Bools = (scores[:wanted] >= bar) & (scores[:wanted] > end)
    return float(is_found.mean())


def _deeper(part: Part) -> Part:
    request = replace(part.request, top_k=_DEPTH * part.request.top_k, scoring=Scoring())
    return part._replace(engines=replace(part.engines, ranking=None), request=request)


def _sampled_views(snapshot: Snapshot, total: int) -> tuple[npt.NDArray[np.floating], Ints]:
    """The views of living documents of a store drawn by chance, its share of the sample: rows as stored, and starts."""
    living = np.flatnonzero(snapshot.alive)
    count = min(len(living), -(-_SAMPLED_DOCUMENTS * len(living) // max(total, 1)))
    drawn = np.random.default_rng(_SEED).choice(living, size=count, replace=False)
    return snapshot.views.fetch(np.sort(drawn))
