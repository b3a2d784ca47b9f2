"""Questions -> the same questions with mined negatives: candidates, filters, choice, teacher scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

import numpy as np

from mvindex.errors import ConfigError
from mvindex.records import Document
from mvindex_train.data.records import Example, hash_text
from mvindex_train.negatives.candidates import Candidate, CandidateSource, interleave, unite
from mvindex_train.negatives.config import MiningConfig
from mvindex_train.negatives.filters import CandidateFilter

REMOVED_CROSS_ENCODER, TOO_FEW = "removed_cross_encoder", "too_few"


class Judge(Protocol):
    """A cross-encoder: scores of (question, document) pairs, higher for a better answer."""

    def score(self, pairs: Sequence[tuple[str, Document]]) -> list[float]:
        """One score a pair, in their order."""
        ...


class EarlierNegatives(Protocol):
    """Negatives of an earlier round."""

    def negatives_of(self, example: Example) -> Sequence[Candidate]:
        """Those of this question, none where the earlier round had not this question."""
        ...


@dataclass(slots=True)
class Miner:
    """Mines negatives of questions, batch by batch.

    judge: scores candidates where config.keep_below or config.teacher asks for it. earlier: negatives to unite with the
    mined ones, which come first; they are taken as they are, beyond per_question. counts: what was done so far.
    """

    sources: Sequence[CandidateSource]
    config: MiningConfig
    judge: Judge | None = None
    earlier: EarlierNegatives | None = None
    counts: Counter[str] = field(default_factory=Counter)
    _filter: CandidateFilter = field(init=False)

    def __post_init__(self) -> None:
        self._filter = CandidateFilter(self.config.patterns)
        if self.judge is None and (self.config.teacher or self.config.keep_below is not None):
            raise ConfigError("keep_below and teacher need a cross-encoder")

    def mine(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The examples with mined negatives instead of their own, in their order."""
        iterator = iter(examples)
        while batch := list(islice(iterator, self.config.batch_questions)):
            yield from self.mine_batch(batch)

    def mine_batch(self, examples: Sequence[Example]) -> list[Example]:
        """The examples with their negatives, at most per_question new ones each, hardest first within a source."""
        questions = [example.question for example in examples]
        found = [source.search(questions, self.config.depth) for source in self.sources]
        queues = [
            self._filter.sift(example, self._in_order(example, lists), self.counts)
            for example, lists in zip(examples, zip(*found, strict=True), strict=True)
        ]
        chosen = [list(islice(queue, self.config.per_question)) for queue in queues]
        if self.judge is not None and self.config.keep_below is not None:
            self._replace_false_negatives(examples, queues, chosen)
        self._count(examples, chosen)
        return self._finish(examples, chosen)

    def _in_order(self, example: Example, lists: Sequence[Sequence[Candidate]]) -> list[Candidate]:
        """The candidates of all sources in the order in which they are tried."""
        kept = [found[self.config.skip_top : self.config.depth] for found in lists]
        if self.config.sample:
            # Seeded by the question, not by a running stream: the draw is the same wherever a run was taken up again.
            generator = np.random.default_rng([self.config.seed, hash_text(example.question_id)])
            kept = [[found[row] for row in generator.permutation(len(found))] for found in kept]
        return interleave(kept)

    def _replace_false_negatives(
        self, examples: Sequence[Example], queues: Sequence[Iterator[Candidate]], chosen: list[list[Candidate]]
    ) -> None:
        """Nothing; in chosen, candidates that score above keep_below have given way to the next ones of their queue."""
        fresh = [list(candidates) for candidates in chosen]
        for candidates in chosen:
            candidates.clear()
        while any(fresh):
            for row, passed in enumerate(self._passed(examples, fresh)):
                chosen[row] += passed
            fresh = [
                list(islice(queue, self.config.per_question - len(candidates)))
                for queue, candidates in zip(queues, chosen, strict=True)
            ]

    def _passed(self, examples: Sequence[Example], fresh: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """The fresh candidates of each question that score at most keep_below."""
        limit = self.config.keep_below
        scores = self._scores(examples, [[candidate.document for candidate in candidates] for candidates in fresh])
        passed = [
            [candidate for candidate, score in zip(candidates, row, strict=True) if limit is None or score <= limit]
            for candidates, row in zip(fresh, scores, strict=True)
        ]
        self.counts[REMOVED_CROSS_ENCODER] += sum(map(len, fresh)) - sum(map(len, passed))
        return passed

    def _finish(self, examples: Sequence[Example], chosen: Sequence[list[Candidate]]) -> list[Example]:
        """The examples with the chosen negatives, united with earlier ones, and scored by the teacher."""
        rows = []
        for example, mined in zip(examples, chosen, strict=True):
            negatives = tuple(candidate.to_document() for candidate in self._united(example, mined))
            rows.append(replace(example, negatives=negatives, teacher=None))
        self.counts["negatives"] += sum(len(row.negatives) for row in rows)
        if not self.config.teacher:
            return rows
        scores = self._scores(examples, [row.documents for row in rows])
        return [replace(row, teacher=tuple(teacher)) for row, teacher in zip(rows, scores, strict=True)]

    def _united(self, example: Example, mined: list[Candidate]) -> list[Candidate]:
        if self.earlier is None:
            return mined
        united = unite([*mined, *self.earlier.negatives_of(example)])
        self.counts["merged"] += len(united) - len(mined)
        return united

    def _scores(self, examples: Sequence[Example], lists: Sequence[Sequence[Document]]) -> list[list[float]]:
        """The judge's score of each question with each document of its list."""
        if self.judge is None:
            raise ConfigError("keep_below and teacher need a cross-encoder")
        pairs = [(example.question, document) for example, row in zip(examples, lists, strict=True) for document in row]
        scores = iter(self.judge.score(pairs))
        return [list(islice(scores, len(row))) for row in lists]

    def _count(self, examples: Sequence[Example], chosen: Sequence[Sequence[Candidate]]) -> None:
        self.counts["questions"] += len(examples)
        self.counts["without_answers"] += sum(not example.answers for example in examples)
        self.counts[TOO_FEW] += sum(len(candidates) < self.config.per_question for candidates in chosen)
