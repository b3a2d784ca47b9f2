"""Mining of negatives for batches of questions: candidates, filters, selection, teacher scores.

Dense candidates are the documents that the current encoder ranks high.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from mvindex.encoder import Encoder
from mvindex.errors import ConfigError
from mvindex.index import Index
from mvindex.index.factory import create
from mvindex.records import Document, batched
from mvindex_train.data.records import Example, hash_text
from mvindex_train.negatives.candidates import Candidate, CandidateFilter, CandidateSource, interleave, merge_duplicates
from mvindex_train.negatives.config import MiningConfig

REMOVED_CROSS_ENCODER, TOO_FEW = "removed_cross_encoder", "too_few"


class Scorer(Protocol):
    """A cross-encoder: scores of (question, document) pairs, higher for a better answer."""

    def score(self, pairs: Sequence[tuple[str, Document]]) -> list[float]:
        """Return one score for each pair, in order."""
        ...


class EarlierNegatives(Protocol):
    """Negatives of an earlier round."""

    def negatives_of(self, example: Example) -> Sequence[Candidate]:
        """Return the negatives of this question; none where the earlier round does not contain it."""
        ...


@dataclass(slots=True)
class Miner:
    """Mines negatives of questions, batch by batch.

    cross_encoder: required by config.keep_below and config.teacher. earlier: negatives appended to the mined ones,
    unfiltered and beyond per_question. counts: of the run so far.
    """

    sources: Sequence[CandidateSource]
    config: MiningConfig
    cross_encoder: Scorer | None = None
    earlier: EarlierNegatives | None = None
    counts: Counter[str] = field(default_factory=Counter)
    _filter: CandidateFilter = field(init=False)

    def __post_init__(self) -> None:
        self._filter = CandidateFilter(self.config.patterns)
        if self.cross_encoder is None and (self.config.teacher or self.config.keep_below is not None):
            raise ConfigError("keep_below, teacher: expected a cross-encoder, got none")

    def mine(self, examples: Iterable[Example]) -> Iterator[Example]:
        """Yield the examples in order with mined negatives in place of their own."""
        for batch in batched(examples, self.config.batch_questions):
            yield from self.mine_batch(batch)

    def mine_batch(self, examples: Sequence[Example]) -> list[Example]:
        """Return the examples with at most per_question new negatives each, hardest first within a source."""
        questions = [example.question for example in examples]
        rankings = [source.search(questions, self.config.depth) for source in self.sources]
        queues = [
            self._filter.filter(example, self._in_order(example, lists), self.counts)
            for example, lists in zip(examples, zip(*rankings, strict=True), strict=True)
        ]
        chosen = [list(islice(queue, self.config.per_question)) for queue in queues]
        if self.cross_encoder is not None and self.config.keep_below is not None:
            self._replace_false_negatives(examples, queues, chosen)
        self._count(examples, chosen)
        return self._finish(examples, chosen)

    def _in_order(self, example: Example, lists: Sequence[Sequence[Candidate]]) -> list[Candidate]:
        """Return the candidates of all sources in the order in which they are tried."""
        ranked = [candidates[self.config.skip_top : self.config.depth] for candidates in lists]
        if self.config.sample:
            # Seeded by the question, so that a resumed run draws the same candidates.
            generator = np.random.default_rng([self.config.seed, hash_text(example.question_id)])
            ranked = [[candidates[row] for row in generator.permutation(len(candidates))] for candidates in ranked]
        return interleave(ranked)

    def _replace_false_negatives(
        self, examples: Sequence[Example], queues: Sequence[Iterator[Candidate]], chosen: list[list[Candidate]]
    ) -> None:
        """Replace chosen candidates that score above keep_below by the next ones of their queue."""
        fresh = [list(candidates) for candidates in chosen]
        for candidates in chosen:
            candidates.clear()
        while any(fresh):
            for row, passed in enumerate(self._below_limit(examples, fresh)):
                chosen[row] += passed
            fresh = [
                list(islice(queue, self.config.per_question - len(candidates)))
                for queue, candidates in zip(queues, chosen, strict=True)
            ]

    def _below_limit(self, examples: Sequence[Example], fresh: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return the fresh candidates of each question that score at most keep_below."""
        limit = self.config.keep_below
        scores = self._scores(examples, [[candidate.document for candidate in candidates] for candidates in fresh])
        passed = [
            [candidate for candidate, score in zip(candidates, row, strict=True) if limit is None or score <= limit]
            for candidates, row in zip(fresh, scores, strict=True)
        ]
        self.counts[REMOVED_CROSS_ENCODER] += sum(map(len, fresh)) - sum(map(len, passed))
        return passed

    def _finish(self, examples: Sequence[Example], chosen: Sequence[list[Candidate]]) -> list[Example]:
        """Return the examples with the chosen and the earlier negatives, scored by the teacher."""
        rows = []
        for example, mined in zip(examples, chosen, strict=True):
            negatives = tuple(candidate.to_document() for candidate in self._add_earlier(example, mined))
            rows.append(replace(example, negatives=negatives, teacher=None))
        self.counts["negatives"] += sum(len(row.negatives) for row in rows)
        if not self.config.teacher:
            return rows
        scores = self._scores(examples, [row.documents for row in rows])
        return [replace(row, teacher=tuple(teacher)) for row, teacher in zip(rows, scores, strict=True)]

    def _add_earlier(self, example: Example, mined: list[Candidate]) -> list[Candidate]:
        if self.earlier is None:
            return mined
        merged = merge_duplicates([*mined, *self.earlier.negatives_of(example)])
        self.counts["merged"] += len(merged) - len(mined)
        return merged

    def _scores(self, examples: Sequence[Example], lists: Sequence[Sequence[Document]]) -> list[list[float]]:
        """Return the cross-encoder's score of each question with each document of its list."""
        if self.cross_encoder is None:
            raise ConfigError("keep_below, teacher: expected a cross-encoder, got none")
        pairs = [(example.question, document) for example, row in zip(examples, lists, strict=True) for document in row]
        scores = iter(self.cross_encoder.score(pairs))
        return [list(islice(scores, len(row))) for row in lists]

    def _count(self, examples: Sequence[Example], chosen: Sequence[Sequence[Candidate]]) -> None:
        self.counts["questions"] += len(examples)
        self.counts["without_answers"] += sum(not example.answers for example in examples)
        self.counts[TOO_FEW] += sum(len(candidates) < self.config.per_question for candidates in chosen)


SOURCE_NAME = "dense"


class DenseSource:
    """Ranks the documents of an index by their best view.

    exact: certified rankings, with any engine of the index.
    """

    def __init__(self, index: Index, exact: bool = False) -> None:
        self._index, self._exact = index, exact

    def search(self, questions: Sequence[str], depth: int) -> list[list[Candidate]]:
        """Return for each question the depth documents of highest score, best first."""
        results = self._index.search(list(questions), top_k=depth, exact=self._exact, mode="dense")
        return [
            [
                Candidate(Document(hit.id, hit.text, hit.title), hit.score, rank, SOURCE_NAME)
                for rank, hit in enumerate(result.hits, start=1)
            ]
            for result in results
        ]


def mine_dense(
    encoder: Encoder, documents: Iterable[Document], questions: Iterable[Example], config: MiningConfig
) -> Iterator[Example]:
    """Yield the questions with negatives mined by this encoder, to refresh a training run (ANCE; DRPQ section 3.3).

    The documents are encoded into an index inside config.work_folder, which is deleted when the iterator ends or is
    closed; the encoder must not change before that.
    """
    with _temporary_index(encoder, config.work_folder) as index:
        index.add(documents)
        yield from Miner([DenseSource(index, config.exact)], config).mine(questions)


@contextmanager
def _temporary_index(encoder: Encoder, parent: Path | None) -> Iterator[Index]:
    folder = Path(tempfile.mkdtemp(prefix="mining-", dir=parent))
    try:
        with create(folder / "documents.mvx", encoder=encoder) as index:
            yield index
    finally:
        shutil.rmtree(folder)
