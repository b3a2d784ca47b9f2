"""Search of a hidden index, also where only a part of its passages has views."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from mvindex.index import Index
from mvindex.records import Hit
from mvindex.search.fusion import Mode

# Passages on any subject have cosines of up to .39 with words that mean nothing, measured on sources and docs of
# packages. One that has none of the words must be nearer.
_LEAST_COSINE = 0.4
# Of each list: they set its scale, as in hybrid search.
_DEPTH = 100
# Nearly nothing, so that passages are ordered by their terms, and scored by both.
_TERMS_FIRST = (1e-9, 1.0)


class GrepHit(NamedTuple):
    """A hit, with its score in each ranking; None where that was not asked for."""

    hit: Hit
    dense: float | None
    lexical: float | None

    @property
    def is_near(self) -> bool:
        """Return whether the passage has one of the words, or is near in meaning."""
        return bool(self.lexical) or (self.dense is not None and self.dense >= _LEAST_COSINE)


def search_hidden(  # noqa: PLR0913 - a query, and what is searched for it
    index: Index, words: str, top_k: int, mode: Mode, files: Collection[str] | None, *, has_bare: bool
) -> list[GrepHit]:
    """Return the best passages that have one of the words or are near in meaning, best first.

    Args:
        index: The index.
        words: The query.
        top_k: Number of passages, at most.
        mode: By which rankings; AUTO is HYBRID, since a hidden index has a lexical side.
        files: The files that are searched; None for all.
        has_bare: Whether there are passages without views.

    """
    if not len(index) or files == []:
        return []
    mode = Mode.HYBRID if mode is Mode.AUTO else mode
    chosen: dict[str, Any] = {"filter": None if files is None else {"file": {"in": list(files)}}, "mode": mode.value}
    depth = max(top_k, _DEPTH)  # the best of all may be left out, for it has none of the words and is not near
    if has_bare and mode is Mode.HYBRID:
        found = _partly(index, words, depth, chosen)
    else:
        found = [_scored(hit) for hit in index.search(words, depth, **chosen).hits]
    return [hit for hit in found if hit.is_near][:top_k]


def _scored(hit: Hit) -> GrepHit:
    scores = {component.name: component.score for component in hit.components} or {"dense": hit.score}
    return GrepHit(hit, scores.get("dense"), scores.get("lexical"))


def _partly(index: Index, words: str, depth: int, chosen: dict[str, Any]) -> list[GrepHit]:
    """Return the candidates of both rankings, fused as by zscore.

    A passage without views is taken to be as near in meaning as it is by its terms. Its view of zeros has a cosine of
    0, which is farther than any candidate's: fused as it is, it would end behind all of them.
    """
    search: Any = index.search  # with options that are put together
    vector = index.encode_queries([words])[0]
    searches = [search(vector, depth, text=words, **chosen, **extra) for extra in ({}, {"weights": _TERMS_FIRST})]
    found = list({hit.id: _scored(hit) for result in searches for hit in result.hits}.values())
    dense = np.array([hit.dense for hit in found], dtype=np.float64)
    lexical = np.array([hit.lexical for hit in found], dtype=np.float64)
    is_bare = dense == 0
    by_terms = _standardised(lexical, lexical[lexical > 0])
    scores = by_terms + np.where(is_bare, by_terms, _standardised(dense, dense[~is_bare]))
    return [found[place] for place in np.argsort(-scores, kind="stable").tolist()]


def _standardised(scores: np.ndarray[Any, Any], listed: Sequence[float] | np.ndarray[Any, Any]) -> Any:
    """Return the scores on the scale of the best of a list: zero mean, and a standard deviation of one."""
    best = np.sort(np.asarray(listed))[::-1][:_DEPTH]
    spread = best.std() if len(best) else 0.0
    return (scores - best.mean()) / spread if spread > 0 else np.zeros(len(scores))
