"""Measures over relevance judgements, with the names of ir-measures and the figures of trec_eval.

A ranking is the documents of a question, best first. Callers that have scores order them as trec_eval does: by score,
equal scores by descending id. A document is relevant from grade 1 on, or from `rel` on; nDCG takes the grades as gains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mvindex.errors import ConfigError
from mvindex.records import Bools, Doubles, Ints

Judgements = Mapping[str, int]

# A table of the grades of questions that are computed together has about so many cells, or one question.
_CELLS = 1 << 20
# Grades that a file of judgements can hold.
_MAX_GRADE = 10**9
# In such a table: a document without a judgement, and a place behind the last document.
_UNJUDGED, _ABSENT = np.iinfo(np.int64).min + 1, np.iinfo(np.int64).min
_MAX_CUTOFF = 1_000_000
_SYNTAX = re.compile(r"(?P<name>[A-Za-z]+)(?:\((?P<options>[^()]*)\))?(?:@(?P<cutoff>[0-9]{1,7}))?")
_ALIASES = {"MAP": "AP", "MRR": "RR", "NDCG": "nDCG", "Precision": "P", "Recall": "R", "RPrec": "Rprec"}


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure: cutoff is the number of hits that it sees, None for all; rel the least grade of a relevant document.

    judged_only: documents without a judgement are left out of a ranking first.
    """

    kind: str
    cutoff: int | None = None
    rel: int = 1
    judged_only: bool = False


@dataclass(frozen=True, slots=True)
class _Table:
    """The grades of some questions, as one measure sees them.

    ranked: (q, m) grades in the order of the rankings, up to the cut-off; judged: (q, j) all grades of each question,
    descending; the rest of a line is _ABSENT. rel: the least grade of a relevant document; cutoff: as in Measure.
    """

    ranked: Ints
    judged: Ints
    rel: int
    cutoff: int | None

    @property
    def hits(self) -> Bools:
        return self.ranked >= self.rel

    @property
    def num_relevant(self) -> Ints:
        return np.asarray((self.judged >= self.rel).sum(axis=1))


def parse_measure(name: str) -> Measure:
    """Return the measure of this name, such as nDCG@10, MRR@10, R@100, AP, P(rel=2)@5, nDCG(judged_only=True)@10.

    Raises:
        ConfigError: There is no such measure; the message lists those that exist.

    """
    parsed = _SYNTAX.fullmatch(name)
    kind = parsed and _ALIASES.get(parsed["name"], parsed["name"])
    if parsed is None or kind not in _KINDS:
        raise _unknown(name)
    try:
        cutoff = int(parsed["cutoff"]) if parsed["cutoff"] else None
        measure = Measure(kind, cutoff, **_options(parsed["options"] or "", kind))
    except ValueError as err:
        raise _unknown(name) from err
    needs = _KINDS[kind].needs_cutoff
    if needs not in (None, cutoff is not None) or not (cutoff is None or 1 <= cutoff <= _MAX_CUTOFF):
        raise _unknown(name)
    return measure


def measure_values(
    measure: Measure, qrels: Mapping[str, Judgements], rankings: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Return the measure of each question of rankings that is judged.

    Args:
        measure: See parse_measure().
        qrels: Question id to document id to grade, a whole number up to 1,000,000,000.
        rankings: Question id to document ids, the best first, each once.

    Raises:
        ConfigError: A grade is no such number, or a ranking holds a document twice.

    """
    question_ids = [question_id for question_id in rankings if question_id in qrels]
    lengths = [max(len(rankings[question_id]), len(qrels[question_id]), 1) for question_id in question_ids]
    # Questions of about one length together: a table is as wide as its longest line.
    order = sorted(range(len(question_ids)), key=lengths.__getitem__)
    values: dict[str, float] = {}
    while order:
        some = [question_ids[at] for at in order[-max(1, _CELLS // lengths[order[-1]]) :]]
        del order[-len(some) :]
        ranked = [_ranked(measure, rankings[question_id], qrels[question_id]) for question_id in some]
        judged = [sorted(_checked(qrels[question_id], question_id), reverse=True) for question_id in some]
        for question_id in some:
            if len(set(rankings[question_id])) < len(rankings[question_id]):
                raise ConfigError(
                    f"ranking of question {question_id!r:.60}: expected each document once, got one twice"
                )
        table = _Table(_filled(ranked), _filled(judged), measure.rel, measure.cutoff)
        values.update(zip(some, _KINDS[measure.kind].compute(table).tolist(), strict=True))
    return {question_id: values[question_id] for question_id in question_ids}


def _checked(judgements: Judgements, question_id: str) -> list[int]:
    """Return the grades of a question."""
    for doc_id, grade in judgements.items():
        if not isinstance(grade, int | np.integer) or abs(grade) > _MAX_GRADE:
            raise ConfigError(
                f"judgements of question {question_id!r:.60}, document {doc_id!r:.60}: grade: expected a whole number "
                f"up to {_MAX_GRADE:,}, got {grade!r:.60}"
            )
    return list(map(int, judgements.values()))


def _options(text: str, kind: str) -> dict[str, Any]:
    """Return the options between the brackets of a name; ValueError for others than the measure has."""
    options: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        option, _, value = part.partition("=")
        if option not in _KINDS[kind].options or option in options:
            raise ValueError(part)
        if option == "rel":
            if re.fullmatch("[0-9]{1,9}", value) is None:
                raise ValueError(part)
            options[option] = int(value)
        elif value in ("True", "False"):
            options[option] = value == "True"
        if option not in options or options.get("rel", 1) < 1:
            raise ValueError(part)
    return options


def _unknown(name: str) -> ConfigError:
    return ConfigError(
        "measure: expected nDCG, AP, RR (MRR) or Judged, each with an optional @k; P@k, R@k or Success@k; or Rprec "
        f"(k from 1 to {_MAX_CUTOFF:,}; such as nDCG@10 or P(rel=2)@5), got {name!r:.60}"
    )


def _ranked(measure: Measure, documents: Sequence[str], judgements: Judgements) -> list[int]:
    """Return the grades of the documents that the measure sees."""
    if measure.judged_only:
        return [judgements[doc_id] for doc_id in documents if judgements.get(doc_id, -1) >= 0][: measure.cutoff]
    return [judgements.get(doc_id, _UNJUDGED) for doc_id in documents[: measure.cutoff]]


def _filled(lines: Sequence[Sequence[int]]) -> Ints:
    """Return lines of different lengths as one table, (lines, longest)."""
    table = np.full((len(lines), max(map(len, lines), default=0)), _ABSENT, dtype=np.int64)
    for row, line in enumerate(lines):
        table[row, : len(line)] = line
    return table


def _ratio(numerators: Doubles | Ints, denominators: Doubles | Ints) -> Doubles:
    """Return the quotients, 0 where the denominator is 0."""
    return np.divide(
        numerators, denominators, out=np.zeros(len(numerators)), where=np.asarray(denominators) != 0, dtype=np.float64
    )


def _ndcg(table: _Table) -> Doubles:
    return _ratio(_gain(table.ranked), _gain(table.judged[:, : table.cutoff]))


def _gain(grades: Ints) -> Doubles:
    """Return the discounted cumulative gain of each line (Järvelin and Kekäläinen 2002); grades below 0 add 0."""
    return np.asarray(np.maximum(grades, 0) @ (1 / np.log2(np.arange(2, grades.shape[1] + 2))))


def _average_precision(table: _Table) -> Doubles:
    hits = table.hits
    precisions = hits.cumsum(axis=1) / np.arange(1, hits.shape[1] + 1)
    return _ratio((precisions * hits).sum(axis=1), table.num_relevant)


def _reciprocal_rank(table: _Table) -> Doubles:
    hits = table.hits
    if not hits.shape[1]:
        return np.zeros(len(hits))
    return np.asarray(np.where(hits.any(axis=1), 1 / (1 + hits.argmax(axis=1)), 0.0))


def _precision(table: _Table) -> Doubles:
    return np.asarray(table.hits.sum(axis=1) / table.cutoff)


def _recall(table: _Table) -> Doubles:
    return _ratio(table.hits.sum(axis=1), table.num_relevant)


def _r_precision(table: _Table) -> Doubles:
    """Return the precision among the first R documents, R being the number of relevant ones."""
    relevant = table.num_relevant
    is_read = np.arange(table.ranked.shape[1]) < relevant[:, None]
    return _ratio((table.hits & is_read).sum(axis=1), relevant)


def _success(table: _Table) -> Doubles:
    return np.asarray(table.hits.any(axis=1), dtype=np.float64)


def _judged(table: _Table) -> Doubles:
    return _ratio((table.ranked > _UNJUDGED).sum(axis=1), (table.ranked != _ABSENT).sum(axis=1))


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a measure is computed, whether it needs a cut-off (None: either way), and the options that it has."""

    compute: Callable[[_Table], Doubles]
    needs_cutoff: bool | None = None
    options: tuple[str, ...] = ("rel", "judged_only")


_KINDS = {
    "nDCG": _Kind(_ndcg, options=("judged_only",)),
    "AP": _Kind(_average_precision),
    "RR": _Kind(_reciprocal_rank),
    "P": _Kind(_precision, needs_cutoff=True),
    "R": _Kind(_recall, needs_cutoff=True),
    "Success": _Kind(_success, needs_cutoff=True),
    "Rprec": _Kind(_r_precision, needs_cutoff=False),
    "Judged": _Kind(_judged, options=()),
}
