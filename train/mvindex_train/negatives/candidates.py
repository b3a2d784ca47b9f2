"""What a source of negatives proposes for a question, and the sources' protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Protocol

from mvindex.records import Document
from mvindex_train.data.records import SOURCE

# Between the names in the source of a negative that several sources found.
SOURCE_SEPARATOR = "+"


# Digits after the point of a score that is written: float32 holds hardly more of a score near 1.
_SCORE_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document that a source found for a question: its score there, its rank from 1, the names of its sources.

    None where that is not known: of negatives that were given.
    """

    document: Document
    score: float | None = None
    rank: int | None = None
    source: str | None = None

    def to_document(self) -> Document:
        """The document with score, rank and source as its metadata, as a row of training data has them."""
        score = None if self.score is None else round(float(self.score), _SCORE_DIGITS)
        notes = {"score": score, "rank": self.rank, SOURCE: self.source}
        known = {name: value for name, value in notes.items() if value is not None}
        return replace(self.document, metadata={**self.document.metadata, **known})


def candidate_of(document: Document) -> Candidate:
    """The candidate that to_document() made this of."""
    notes = document.metadata
    return Candidate(document, notes.get("score"), notes.get("rank"), notes.get(SOURCE))


class CandidateSource(Protocol):
    """Something that ranks documents for questions."""

    def search(self, questions: Sequence[str], depth: int) -> list[list[Candidate]]:
        """For each question at most depth distinct documents, best first."""
        ...


def interleave(lists: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """The candidates of several sources in turns, each document once, as first met, with all its sources named."""
    in_turns = [candidate for turn in zip_longest(*lists) for candidate in turn if candidate is not None]
    return unite(in_turns)


def unite(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates with each document once: at its first place, with that one's score and rank, all sources named."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        known = first.setdefault(candidate.document.id, candidate)
        if known is not candidate:
            first[candidate.document.id] = replace(known, source=_join(known.source, candidate.source))
    return list(first.values())


def _join(one: str | None, other: str | None) -> str | None:
    names = [name for sources in (one, other) if sources for name in sources.split(SOURCE_SEPARATOR)]
    return SOURCE_SEPARATOR.join(dict.fromkeys(names)) or None
