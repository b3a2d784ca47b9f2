"""Retrieval quality, question by question: gold recall, DPR's answer accuracy, and metrics over judgements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mvindex.errors import QueryError
from mvindex.eval.answers import AnswerMatcher
from mvindex.eval.questions import Question
from mvindex.plugins import require
from mvindex.records import Hit, SearchResult

DEFAULT_CUTOFFS = (1, 5, 20, 100)

# The judged questions held back before their metrics are worked out together.
JUDGED_BATCH = 256
# Name in the report -> name in ir-measures, and how many hits it reads.
JUDGED_MEASURES = {"nDCG@10": ("nDCG@10", 10), "MRR@10": ("RR@10", 10), "R@100": ("R@100", 100)}
DEEP_MEASURES = {"R@1000": ("R@1000", 1000)}


class Documents(Protocol):
    """What an evaluation asks of the index: how many documents it has, and whether it has this one."""

    def __len__(self) -> int: ...
    def __contains__(self, doc_id: object, /) -> bool: ...


class Evaluation:
    """Collects results as they come and reports their quality; keeps counts, not results.

    cutoffs: the k of every R@k. qrels: question id -> document id -> grade, for nDCG, MRR and recall, which need
    ir-measures. regex: the answers are patterns. documents: the index, to report its size and gold documents it lacks.
    QueryError for cutoffs that are not whole numbers from 1; ExtraMissing for qrels without ir-measures.
    """

    def __init__(
        self,
        cutoffs: Sequence[int] = DEFAULT_CUTOFFS,
        qrels: Mapping[str, Mapping[str, int]] | None = None,
        regex: bool = False,
        documents: Documents | None = None,
    ) -> None:
        self._cutoffs = _check_cutoffs(cutoffs)
        self._judged = None if qrels is None else _Judged(qrels, self._cutoffs[-1])
        self._matcher = AnswerMatcher(patterns=regex)
        self._documents = documents
        self._gold, self._answer = _HitRate(), _HitRate()
        self._counts: Counter[str] = Counter()

    @property
    def needed_depth(self) -> int:
        """How many documents a search must ask for, so that every figure is what its name says."""
        return max(self._cutoffs[-1], self._judged.depth if self._judged else 0)

    def add(self, question: Question, result: SearchResult) -> None:
        """Count one question's result; each question comes once. QueryError for an answer pattern that is none."""
        self._counts.update(questions=1, exact=int(result.exact), short=int(result.short_by > 0))
        hits = result.hits[: self._cutoffs[-1]]
        if question.passage_id is not None:
            self._add_gold(question.passage_id, hits)
        if question.answers:
            holds_answer = self._matcher.prepare(question.id, question.answers)
            self._answer.add(next((rank for rank, hit in enumerate(hits, 1) if holds_answer(hit.text)), None))
        if self._judged:
            self._judged.add(question.id, result.hits)

    def report(self) -> dict[str, Any]:
        """The figures so far, as JSON values: shares from 0 to 1, rounded to 4 digits.

        `gold`, `answer` and `qrels` are there only when some question had a gold document, answers or judgements;
        `counts` says how many had. `questions`, `exact` (results that were certified) and `short` (results that lack
        documents) are always there; `documents` and `gold_missing` (questions whose gold document is not in the index,
        each a miss) when the documents are known; `unjudged` (questions that `qrels` leaves out) when there are qrels.
        """
        sections = {"gold": self._gold.shares(self._cutoffs), "answer": self._answer.shares(self._cutoffs)}
        counts = {"gold": self._gold.total, "answer": self._answer.total}
        report: dict[str, Any] = {"questions": self._counts["questions"]}
        if self._documents is not None:
            report.update(documents=len(self._documents), gold_missing=self._counts["gold_missing"])
        if self._judged:
            sections["qrels"], counts["qrels"] = self._judged.means(), self._judged.total
            report["unjudged"] = self._counts["questions"] - self._judged.total
        report.update(exact=self._counts["exact"], short=self._counts["short"], counts=counts)
        return {name: section for name, section in sections.items() if counts[name]} | report

    def _add_gold(self, gold_id: str, hits: Sequence[Hit]) -> None:
        rank = next((rank for rank, hit in enumerate(hits, 1) if hit.id == gold_id), None)
        self._gold.add(rank)
        if rank is None and self._documents is not None and gold_id not in self._documents:
            self._counts["gold_missing"] += 1


class _HitRate:
    """How often the first right document came by rank k."""

    def __init__(self) -> None:
        self.total = 0
        self._by_rank: Counter[int] = Counter()

    def add(self, rank: int | None) -> None:
        """Count a question whose first right document stood at this rank, from 1; None: nowhere."""
        self.total += 1
        if rank is not None:
            self._by_rank[rank] += 1

    def shares(self, cutoffs: Sequence[int]) -> dict[str, float]:
        total = max(self.total, 1)
        found = {k: sum(count for rank, count in self._by_rank.items() if rank <= k) for k in cutoffs}
        return {f"R@{k}": round(found[k] / total, 4) for k in cutoffs}


class _Judged:
    """Means of the measures over the judged questions, in the order of the hits.

    The measures get falling numbers for scores: they would order equal scores by document id, which is not the order
    that was answered.
    """

    def __init__(self, qrels: Mapping[str, Mapping[str, int]], deepest: int) -> None:
        self._measures = require("ir_measures", "eval", "evaluation against qrels")
        deep = {name: measure for name, measure in DEEP_MEASURES.items() if measure[1] <= deepest}
        chosen = JUDGED_MEASURES | deep
        self.depth = max(depth for _, depth in chosen.values())
        self.total = 0
        self._names = {self._measures.parse_measure(measure): name for name, (measure, _) in chosen.items()}
        self._sums = dict.fromkeys(chosen, 0.0)
        self._qrels = qrels
        self._run: dict[str, dict[str, float]] = {}

    def add(self, question_id: str, hits: Sequence[Hit]) -> None:
        """Take the question's hits when it is judged; one without hits counts with zeros."""
        if question_id not in self._qrels:
            return
        self.total += 1
        self._run[question_id] = {hit.id: -float(row) for row, hit in enumerate(hits[: self.depth])}
        if len(self._run) >= JUDGED_BATCH:
            self._settle()

    def means(self) -> dict[str, float]:
        self._settle()
        return {name: round(total / max(self.total, 1), 4) for name, total in self._sums.items()}

    def _settle(self) -> None:
        judged = {question_id: dict(self._qrels[question_id]) for question_id in self._run}
        for metric in self._measures.iter_calc(list(self._names), judged, self._run):
            self._sums[self._names[metric.measure]] += metric.value
        self._run = {}


def _check_cutoffs(cutoffs: Sequence[int]) -> tuple[int, ...]:
    if not cutoffs or any(type(k) is not int or k < 1 for k in cutoffs):
        raise QueryError(f"cutoffs are {list(cutoffs)}; wanted whole numbers from 1, such as 1,5,20,100")
    return tuple(sorted(set(cutoffs)))
