"""Candidates for negatives of a question, and the protocol of their sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Protocol

from mvindex.records import Document
from mvindex_train.data.records import SOURCE

# Separates the names of several sources of one negative.
SOURCE_SEPARATOR = "+"
# Decimals of a written score: float32 has hardly more of a score near 1.
_SCORE_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document ranked for a question: its score, its rank from 1, the names of its sources; None where unknown."""

    document: Document
    score: float | None = None
    rank: int | None = None
    source: str | None = None

    def to_document(self) -> Document:
        """Return the document with score, rank and source as metadata, as in a row of training data."""
        score = None if self.score is None else round(float(self.score), _SCORE_DIGITS)
        metadata = {"score": score, "rank": self.rank, SOURCE: self.source}
        known = {name: value for name, value in metadata.items() if value is not None}
        return replace(self.document, metadata={**self.document.metadata, **known})


def candidate_of(document: Document) -> Candidate:
    """Return the candidate of a document made by to_document()."""
    metadata = document.metadata
    return Candidate(document, metadata.get("score"), metadata.get("rank"), metadata.get(SOURCE))


class CandidateSource(Protocol):
    """A ranking of documents for questions."""

    def search(self, questions: Sequence[str], depth: int) -> list[list[Candidate]]:
        """Return for each question at most depth distinct documents, best first."""
        ...


def interleave(lists: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """Interleave the candidates of several sources, each document once with the names of all its sources."""
    in_turns = [candidate for turn in zip_longest(*lists) for candidate in turn if candidate is not None]
    return merge_duplicates(in_turns)


def merge_duplicates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Merge candidates of the same document into the first one, which keeps its score and rank and gets all sources."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        known = first.setdefault(candidate.document.id, candidate)
        if known is not candidate:
            first[candidate.document.id] = replace(known, source=_join(known.source, candidate.source))
    return list(first.values())


def _join(one: str | None, other: str | None) -> str | None:
    names = [name for sources in (one, other) if sources for name in sources.split(SOURCE_SEPARATOR)]
    return SOURCE_SEPARATOR.join(dict.fromkeys(names)) or None
