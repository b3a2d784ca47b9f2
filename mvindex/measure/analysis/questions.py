"""The options of an analysis, its sample of questions, and their answers by the index."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import xxhash

from mvindex.errors import ConfigError
from mvindex.index import embedded_store_of
from mvindex.measure.metrics import DEFAULT_CUTOFFS, AnswerMatcher
from mvindex.measure.questions import Question
from mvindex.records import CountCallback, Floats, Hit, SearchResult, winning_text

if TYPE_CHECKING:
    from mvindex.index import Index

# Distances of unit vectors, for cosines from .99875 to .5.
DEFAULT_EPS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOptions:
    """How much an analysis samples, and how it scores documents.

    Attributes:
        cutoffs: The k of every R@k.
        scoring: `max` or `drpq`.
        temperature: Of `drpq`; None is the index's own.
        max_questions: Of more questions a sample is taken.
        max_documents: Of more documents a sample is searched; the relevant documents are in it.
        attention_documents: Documents encoded again for their attention (CAMVR takes 1,000); 0 for none.
        scale: Factor of scores before the softmax of LV; None is 20 for unit vectors, else 1.
        eps: Distances for pruning near-duplicate views.
        regex: Whether answers are regular expressions.
        seed: Of the samples and the bootstrap.

    Raises:
        ConfigError: A number is out of range.

    """

    cutoffs: tuple[int, ...] = DEFAULT_CUTOFFS
    scoring: str = "max"
    temperature: float | None = None
    max_questions: int = 2000
    max_documents: int = 20_000
    attention_documents: int = 100
    scale: float | None = None
    eps: tuple[float, ...] = DEFAULT_EPS
    regex: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("max_questions", 1), ("max_documents", 1), ("attention_documents", 0), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name}: expected a whole number from {least} on, got {value!r}")
        if self.scale is not None and not 0 < self.scale < float("inf"):
            raise ConfigError(f"scale: expected a finite number above 0, got {self.scale!r}")
        if not self.cutoffs or any(type(k) is not int or k < 1 for k in self.cutoffs):
            raise ConfigError(f"cutoffs: expected whole numbers from 1, such as 1,5,20,100, got {list(self.cutoffs)}")


# Question id to document id to grade; above 0 is relevant.
Qrels: TypeAlias = Mapping[str, Mapping[str, int]]

_BATCH = 256


@dataclass(frozen=True, slots=True)
class Sample:
    """The questions that were sampled, and how many were read."""

    questions: list[Question]
    read: int


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question with its results.

    Attributes:
        question: The question.
        vector: Its vector, (d,).
        relevant: Rows of its relevant documents; empty if the index holds none.
        first: The best hit.
        answer: Rank of the first hit that holds an answer; None if none of those searched does.
        answer_view: Rank of the first hit whose winning snippet holds an answer; None if none does.
        answer_citation: Rank of the first hit whose citation holds an answer; None if none does.

    """

    question: Question
    vector: Floats
    relevant: tuple[int, ...]
    first: Hit
    answer: int | None
    answer_view: int | None
    answer_citation: int | None


@dataclass(slots=True)
class AnsweredSet:
    """All questions with their results.

    target: which documents are relevant: gold, answer or best (see answer_questions); gold_missing: the number of
    questions whose gold documents the index does not hold.
    """

    target: str
    questions: list[AnsweredQuestion] = field(default_factory=list)
    gold_missing: int = 0

    @property
    def vectors(self) -> Floats:
        """Return the questions' vectors, (q, d)."""
        return np.stack([one.vector for one in self.questions])


def take_sample(questions: Iterable[Question], most: int, seed: int) -> Sample:
    """Return at most `most` of the questions, drawn uniformly with the seed, in their order.

    The questions of one document stay together: each gold document (or question without one) draws a number from its
    id, and the lowest are taken. Only the sample is in memory.
    """
    heap: list[tuple[int, int, Question]] = []
    read = 0
    for read, question in enumerate(questions, start=1):
        key = question.passage_id if question.passage_id is not None else f"\0{question.id}"
        drawn = xxhash.xxh3_64_intdigest(key.encode(), seed=seed)
        # A heap pops its smallest entry: numbers are negated, so that the highest goes first.
        entry = (-drawn, -read, question)
        if len(heap) < most:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)
    return Sample([question for _, _, question in sorted(heap, key=lambda entry: -entry[1])], read)


def answer_questions(
    index: Index,
    questions: Sequence[Question],
    options: AnalysisOptions,
    qrels: Qrels | None,
    on_progress: CountCallback,
) -> AnsweredSet:
    """Search the index exactly by its views for each question, and decide which documents are relevant.

    If any question has gold documents or documents judged relevant, these are, and other questions are left out. Else,
    if any question has answers, the retrieved documents that hold one are. Else it is the document that the index
    itself ranks first.
    """
    gold = {question.id: gold_of(question, qrels) for question in questions}
    has_gold = any(gold.values())
    has_answers = any(question.answers for question in questions)
    answered = AnsweredSet("gold" if has_gold else "answer" if has_answers else "best")
    chosen = [one for one in questions if gold[one.id]] if has_gold else list(questions)
    matcher = AnswerMatcher(patterns=options.regex)
    scoring: dict[str, Any] = {"scoring": options.scoring, "temperature": options.temperature}
    for begin in range(0, len(chosen), _BATCH):
        batch = chosen[begin : begin + _BATCH]
        texts = [question.text for question in batch]
        vectors = index.encode_queries(texts)
        results: list[SearchResult] = index.search(
            vectors, top_k=max(options.cutoffs), mode="dense", exact=True, text=texts, **scoring
        )
        with embedded_store_of(index).reading(embedded_store_of(index).snapshot) as reader:
            for question, vector, result in zip(batch, vectors, results, strict=True):
                hits = result.hits
                ranks = _AnswerRanks.of(question, hits, matcher)
                ids = {
                    "gold": gold[question.id],
                    "answer": [hits[rank - 1].id for rank in ranks.in_text],
                    "best": [hits[0].id],
                }[answered.target]
                rows = tuple(row for row in map(reader.find, ids) if row is not None)
                answered.gold_missing += answered.target == "gold" and not rows
                first_ranks = [min(some, default=None) for some in (ranks.in_text, ranks.in_snippet, ranks.in_citation)]
                answered.questions.append(AnsweredQuestion(question, vector, rows, hits[0], *first_ranks))
        on_progress(len(batch))
    return answered


def gold_of(question: Question, qrels: Qrels | None) -> list[str]:
    """Return the ids of the question's gold document and of the documents judged relevant for it."""
    judged = [doc_id for doc_id, grade in (qrels or {}).get(question.id, {}).items() if grade > 0]
    return ([question.passage_id] if question.passage_id is not None else []) + judged


@dataclass(frozen=True, slots=True)
class _AnswerRanks:
    """Ranks from 1 of the hits that hold an answer in their text, in their winning snippet, and in their citation."""

    in_text: list[int]
    in_snippet: list[int]
    in_citation: list[int]

    @classmethod
    def of(cls, question: Question, hits: Sequence[Hit], matcher: AnswerMatcher) -> _AnswerRanks:
        """Return the ranks of the hits that answer the question; none if its answers are not known."""
        if not question.answers:
            return cls([], [], [])
        holds_answer = matcher.prepare(question.id, question.answers)
        in_text = [rank for rank, hit in enumerate(hits, start=1) if holds_answer(hit.text)]
        cited = {rank: hits[rank - 1].citation for rank in in_text}
        return cls(
            in_text,
            [rank for rank in in_text if holds_answer(winning_text(hits[rank - 1]) or "")],
            [rank for rank, one in cited.items() if one is not None and holds_answer(one.text)],
        )
