"""The plain truth of document scores: the definition of mvindex.kernels.score in plain loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.records import Doubles, Floats, Ints, QueryGroup, SearchResult

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
