"""Reranking: hits are scored again, question and hit together, and ordered by these scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mvindex.arrays import as_numbers
from mvindex.errors import EncoderError, QueryError
from mvindex.records import Component, Hit, SearchResult, check_count, winning_text
from mvindex.search.fusion import Mode

if TYPE_CHECKING:
    from mvindex.encoder.cross_encoder import CrossEncoder
    from mvindex.search.request import SearchRequest

# Of a question and hits, best first: a score for each hit, higher is better.
Reranker: TypeAlias = Callable[[str, Sequence[Hit]], Sequence[float]]

_DEPTH = 50
_SNIPPET, _TEXT = "snippet", "text"
_LOADING = Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerank:
    """A reranker, how many documents of a search it is given, and which of these are returned: top_k from offset on."""

    score: Reranker
    depth: int
    top_k: int
    offset: int = 0

    def reranked(self, questions: Sequence[str], found: Sequence[SearchResult]) -> list[SearchResult]:
        """Return the result of each question in the new order."""
        return [self._result(*pair) for pair in zip(questions, found, strict=True)]

    def _result(self, question: str, found: SearchResult) -> SearchResult:
        hits = found.hits
        scores = _checked(self.score(question, hits), len(hits)) if hits else []
        order = sorted(range(len(hits)), key=lambda place: (-scores[place], place))
        again = [
            _hit(hits[place], found.mode, place + 1, rank, scores[place])
            for rank, place in enumerate(order[self.offset : self.offset + self.top_k], start=self.offset + 1)
        ]
        short_by = min(self.top_k, max(0, len(hits) + found.short_by - self.offset)) - len(again)
        return replace(found, hits=tuple(again), short_by=short_by)


def parse_rerank(
    rerank: Any, on: str | None, depth: int | None, request: SearchRequest, device: str | None = None
) -> Rerank | None:
    """Return the reranking that the options describe, None without rerank=; raise QueryError for conflicts.

    A checkpoint is loaded when it is first named, to the device. CheckpointError where there is none.
    """
    if rerank is None:
        for name, value in (("rerank_on", on), ("rerank_depth", depth)):
            if value is not None:
                raise QueryError(f"{name}= belongs to rerank=")
        return None
    top_k, offset = request.top_k, request.offset
    if depth is not None:
        check_count("rerank_depth", depth)
        if depth < top_k:
            raise QueryError(f"rerank_depth is {depth}, and top_k {top_k}; expected at least as many candidates")
    depth = max(_DEPTH, top_k) if depth is None else depth
    if offset and offset + top_k > depth:
        raise QueryError(
            f"offset {offset} with rerank=: expected offset and top_k to be {depth} at most together, as so many "
            f"documents are reranked; give every page rerank_depth={offset + top_k} or more"
        )
    return Rerank(score=_scorer(rerank, on, device), depth=depth, top_k=top_k, offset=offset)


def _scorer(rerank: Any, on: str | None, device: str | None) -> Reranker:
    if isinstance(rerank, str | os.PathLike):
        if on not in (None, _SNIPPET, _TEXT):
            raise QueryError(f"rerank_on is {on!r:.60}; expected {_SNIPPET} or {_TEXT}")
        with _LOADING:
            return partial(_read_together, _loaded(os.fspath(rerank), device), on == _TEXT)
    if not callable(rerank):
        raise QueryError(
            f"rerank is {type(rerank).__name__}; expected a function of question and hits, or a checkpoint"
        )
    if on is not None:
        raise QueryError("rerank_on= says what a checkpoint reads; a function is given the hits as they are")
    scorer: Reranker = rerank
    return scorer


@lru_cache(2)
def _loaded(source: str, device: str | None) -> CrossEncoder:
    """Load a cross-encoder; those last used stay in memory."""
    from mvindex.encoder.cross_encoder import CrossEncoder

    return CrossEncoder(source, device)


def _read_together(model: CrossEncoder, are_whole: bool, question: str, hits: Sequence[Hit]) -> list[float]:
    return model.score_texts([(question, _shown(hit, are_whole)) for hit in hits])


def _shown(hit: Hit, is_whole: bool) -> str:
    """Return the text of a hit for a cross-encoder: title and winning view, or the whole text where it has no span."""
    won = None if is_whole else winning_text(hit)
    text = hit.text if won is None else won
    return "\n".join(part for part in dict.fromkeys((hit.title, text)) if part)


def _checked(scores: Any, count: int) -> list[float]:
    """Return the scores; raise EncoderError unless there is one finite number for each hit."""
    try:
        found = as_numbers(scores, kinds="fiub").astype(np.float64)
    except ValueError as err:
        raise EncoderError(f"rerank: the scores of {count} hits: {err}") from err
    if found.shape != (count,):
        raise EncoderError(f"rerank gave scores of shape {found.shape} for {count} hits; expected one for each")
    if not np.isfinite(found).all():
        place = int(np.argmin(np.isfinite(found)))
        raise EncoderError(f"rerank gave {found[place]} for hit {place + 1} of {count}; expected a finite number")
    values: list[float] = found.tolist()
    return values


def _hit(hit: Hit, mode: str, old_rank: int, rank: int, score: float) -> Hit:
    """Return the hit with its new score. The components of the old one stay, with contribution 0."""
    old = hit.components if mode == Mode.HYBRID.value else ()
    was = [*(replace(each, contribution=0.0) for each in old), Component(mode, old_rank, hit.score, 0.0)]
    return replace(hit, score=score, components=(*was, Component("rerank", rank, score, score)))
