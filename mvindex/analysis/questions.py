"""The questions of an analysis: a sample that keeps those of one document together, asked, and what they want."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import xxhash

from mvindex.analysis.options import AnalysisOptions
from mvindex.eval.answers import AnswerMatcher
from mvindex.eval.questions import Question
from mvindex.records import Floats, Hit, SearchResult

if TYPE_CHECKING:
    from mvindex.index import Index

# Question id to document id to grade; above 0 is relevant.
Qrels: TypeAlias = Mapping[str, Mapping[str, int]]

_BATCH = 256


@dataclass(frozen=True, slots=True)
class Sample:
    """Questions of a file or more: those taken, and how many there were."""

    questions: list[Question]
    read: int


@dataclass(frozen=True, slots=True)
class Answered:
    """What the index said to a question.

    wanted: document rows, none where what is wanted is not in the index. first: the best hit. answer, answer_view: the
    rank of the first document that holds an answer, and of the first whose winning snippet does; None: nowhere in the
    depth that was searched.
    """

    question: Question
    vector: Floats
    wanted: tuple[int, ...]
    first: Hit
    answer: int | None
    answer_view: int | None


@dataclass(slots=True)
class Asking:
    """All that was asked. target: gold, answer or best (see ask); gold_missing: gold ids the index does not hold."""

    target: str
    answered: list[Answered] = field(default_factory=list)
    gold_missing: int = 0


def take_sample(questions: Iterable[Question], most: int, seed: int) -> Sample:
    """At most `most` of the questions, drawn evenly with the seed, in their order; a document's questions together.

    Each gold document (or question without one) draws a number from its id; the lowest are kept. Only the sample is
    held in memory.
    """
    kept: list[tuple[int, int, Question]] = []
    read = 0
    for read, question in enumerate(questions, start=1):
        key = question.passage_id if question.passage_id is not None else f"\0{question.id}"
        drawn = xxhash.xxh3_64_intdigest(key.encode(), seed=seed)
        # A heap gives its smallest: negated, the question that is to go next.
        entry = (-drawn, -read, question)
        if len(kept) < most:
            heapq.heappush(kept, entry)
        else:
            heapq.heappushpop(kept, entry)
    return Sample([question for _, _, question in sorted(kept, key=lambda entry: -entry[1])], read)


def ask(
    index: Index,
    questions: Sequence[Question],
    options: AnalysisOptions,
    qrels: Qrels | None,
    on_progress: Callable[[int], None],
) -> Asking:
    """What the index answers, by exact search, and which documents are wanted.

    The gold documents, or those judged relevant, where any question has one (others are then left out); else, of
    questions with answers, those among the best documents that hold one; else the index's own best document.
    """
    gold = {question.id: gold_of(question, qrels) for question in questions}
    has_gold = any(gold.values())
    has_answers = any(question.answers for question in questions)
    asking = Asking("gold" if has_gold else "answer" if has_answers else "best")
    chosen = [one for one in questions if gold[one.id]] if has_gold else list(questions)
    matcher = AnswerMatcher(patterns=options.regex)
    how: dict[str, Any] = {"scoring": options.scoring, "temperature": options.temperature}
    for begin in range(0, len(chosen), _BATCH):
        batch = chosen[begin : begin + _BATCH]
        vectors = index.encode_queries([question.text for question in batch])
        results: list[SearchResult] = index.search(vectors, top_k=max(options.cutoffs), exact=True, **how)
        with index.store.reading(index.store.snapshot) as reader:
            for question, vector, result in zip(batch, vectors, results, strict=True):
                ids, ranks = _wanted(asking.target, (question, gold[question.id]), result.hits, matcher)
                rows = [row for row in (reader.find(doc_id) for doc_id in ids) if row is not None]
                asking.gold_missing += asking.target == "gold" and not rows
                asking.answered.append(Answered(question, vector, tuple(rows), result.hits[0], *ranks))
        on_progress(len(batch))
    return asking


def gold_of(question: Question, qrels: Qrels | None) -> list[str]:
    """The ids of its gold document, and of those judged relevant for it."""
    judged = [doc_id for doc_id, grade in (qrels or {}).get(question.id, {}).items() if grade > 0]
    return ([question.passage_id] if question.passage_id is not None else []) + judged


def _wanted(
    target: str, asked: tuple[Question, list[str]], hits: Sequence[Hit], matcher: AnswerMatcher
) -> tuple[list[str], tuple[int | None, int | None]]:
    """The ids that are wanted; the rank of the first hit that holds an answer, and whose winning snippet does."""
    question, gold = asked
    holding, in_view = [], []
    if question.answers:
        holds_answer = matcher.prepare(question.id, question.answers)
        holding = [rank for rank, hit in enumerate(hits, start=1) if holds_answer(hit.text)]
        in_view = [rank for rank in holding if holds_answer(hits[rank - 1].snippet or "")]
    found = [hits[rank - 1].id for rank in holding] if target == "answer" else [hits[0].id]
    return gold if target == "gold" else found, (min(holding, default=None), min(in_view, default=None))


def vectors_of(answered: Sequence[Answered]) -> Floats:
    """Their vectors, (q, d)."""
    return np.stack([one.vector for one in answered])
