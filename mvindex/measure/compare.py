"""Runs compared by judged measures, with a test of significance, and TREC run files."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TextIO

import numpy as np

from mvindex.corpus.inputs import stream_name
from mvindex.errors import ConfigError, CorpusError, QueryError
from mvindex.measure.metrics import measure_values, parse_measure
from mvindex.measure.questions import visible_lines
from mvindex.records import Doubles, Hit, SearchResult

FLOAT32_MAX = float(np.finfo(np.float32).max)


class RunWriter:
    """Writes results, question by question, to an open text file; name is for messages."""

    def __init__(self, file: TextIO, name: str, tag: str) -> None:
        self._file, self._name, self._tag = file, name, _check_word(tag, "tag")
        self._written: set[str] = set()

    def add(self, question_id: str, hits: Sequence[Hit]) -> None:
        """Write a line for each hit, with ranks from 1.

        The score is the shortest decimal that float32 reads back as the same number. Equal scores stay in the order of
        the hits; trec_eval and tools built on it order them by descending document id instead, whatever their ranks.

        Raises:
            QueryError: An id holds white space, which TREC's columns cannot hold, a question or document occurs twice,
                or a score rises or is not finite. No line of this question is written.
            ConfigError: The file cannot be written.

        """
        if question_id in self._written:
            raise QueryError(f"question {question_id!r}: expected each question once in a run, got it twice")
        _check_word(question_id, "question id")
        _check_hits(question_id, hits)
        self._written.add(question_id)
        with _writing(self._name):
            self._file.writelines(
                f"{question_id} Q0 {hit.id} {rank} {np.float32(hit.score)!s} {self._tag}\n"
                for rank, hit in enumerate(hits, start=1)
            )


@contextlib.contextmanager
def open_run(path: str, tag: str = "mvindex", force: bool = False) -> Iterator[RunWriter]:
    """Open a RunWriter for a new file, which appears under its name if the block ends without an error; `-` is stdout.

    Raises:
        ConfigError: The file exists and force is False, it is not a plain file, or it cannot be written.

    """
    if path == "-":
        yield RunWriter(sys.stdout, "stdout", tag)
        return
    target = Path(path).resolve()
    _check_target(target, force)
    # Next to the target, so that the rename stays within one file system.
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with _writing(path):
        file = unfinished.open("w", encoding="utf-8", newline="\n")
    try:
        with file:
            yield RunWriter(file, path, tag)
            with _writing(path):
                file.flush()
                os.fsync(file.fileno())
        _check_target(target, force)
        with _writing(path):
            unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def write_run(
    path: str, results: Iterable[tuple[str, SearchResult]], tag: str = "mvindex", force: bool = False
) -> None:
    """Write pairs of question id and result as a run file; see open_run and RunWriter.add."""
    with open_run(path, tag, force) as run:
        for question_id, result in results:
            run.add(question_id, result.hits)


@contextlib.contextmanager
def _writing(name: str) -> Iterator[None]:
    """Turn errors of the file system in the block, and no other errors of the caller, into ConfigErrors."""
    try:
        yield
    except OSError as err:
        raise ConfigError(f"{name}: cannot be written: {err.strerror or err}") from err


def _check_target(target: Path, force: bool) -> None:
    if target.exists() and not target.is_file():
        raise ConfigError(f"{target}: is not a plain file; name a new file for the run")
    if target.exists() and not force:
        raise ConfigError(f"{target}: exists; choose another name, or overwrite it with --force")


def _check_hits(question_id: str, hits: Sequence[Hit]) -> None:
    doc_ids: set[str] = set()
    score = math.inf
    for rank, hit in enumerate(hits, start=1):
        place = f"question {question_id!r}, rank {rank}"
        _check_word(hit.id, "document id")
        if hit.id in doc_ids:
            raise QueryError(f"{place}: expected each document once per question, got {hit.id!r} twice")
        if not (abs(hit.score) <= FLOAT32_MAX and hit.score <= score):
            raise QueryError(f"{place}: expected float32 scores in descending order, got {hit.score} after {score}")
        doc_ids.add(hit.id)
        score = hit.score


def _check_word(word: str, what: str) -> str:
    if word.split() != [word]:
        raise QueryError(f"{what}: expected one word without white space, which a TREC run needs, got {word!r}")
    return word


# Question id to document ids, best first.
Run = dict[str, list[str]]
DEFAULT_MEASURES = ("nDCG@10",)
# Up to so many questions that differ, all 2^n assignments of signs are counted.
_EXACT = 16
_SAMPLES = 100_000
_AT_ONCE = 1 << 22
_SEED = 11
# Sums in another order differ by less.
_ROUNDED = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """The mean of a measure over all judged questions. missing: those that the run lacks; each counts as 0."""

    run: str
    measure: str
    mean: float
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs by one measure, question by question.

    difference: mean of second - first, and its standard error, None for one question. p: of a two-sided paired
    randomisation test (Smucker, Allan and Carterette 2007): the share of assignments of signs to the differences whose
    mean is as far from 0; exact for up to 16 questions that differ, else of 100,000 drawn assignments. p_corrected: by
    Holm (1979), for all comparisons of the report. better, equal, worse: questions where second is that.
    """

    first: str
    second: str
    measure: str
    difference: float
    error: float | None
    p: float
    p_corrected: float
    better: int
    equal: int
    worse: int

    @property
    def shown_difference(self) -> str:
        """Return the difference and its error for people."""
        return f"{self.difference:+.4f}" + ("" if self.error is None else f" ± {self.error:.4f}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The figures of all runs, and their comparisons."""

    questions: int
    runs: tuple[RunFigures, ...]
    comparisons: tuple[Comparison, ...]


def read_run(path: str) -> Run:
    """Read a TREC run file: lines of `qid Q0 docid rank score tag`.

    Documents are ordered as trec_eval orders them: by score, equal scores by descending id; the rank is not read.

    Raises:
        CorpusError: A line has another shape, a score is no finite number, a document is twice in a question, or there
            is no line.

    """
    scores: dict[str, dict[str, float]] = {}
    for line in visible_lines(path):
        columns = line.text.split()
        if len(columns) != 6:
            raise CorpusError(
                f"{line.place}: expected 6 columns, `qid Q0 docid rank score tag`, got {len(columns)}: "
                f"{line.text[:60]!r}"
            )
        question_id, doc_id = columns[0], columns[2]
        found = scores.setdefault(question_id, {})
        if doc_id in found:
            raise CorpusError(
                f"{line.place}: expected each document once for question {question_id!r}, got {doc_id!r} twice"
            )
        found[doc_id] = _score(columns[4], line.place)
    if not scores:
        raise CorpusError(f"{stream_name(path)}: expected lines of `qid Q0 docid rank score tag`, got none")
    return {
        question_id: [doc_id for doc_id, _ in sorted(found.items(), key=lambda one: (one[1], one[0]), reverse=True)]
        for question_id, found in scores.items()
    }


def _score(text: str, place: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise CorpusError(f"{place}: score: expected a finite number, got {text[:60]!r}")
    return score


def compare_runs(
    runs: Mapping[str, Run],
    qrels: Mapping[str, Mapping[str, int]],
    measures: Sequence[str] = DEFAULT_MEASURES,
    *,
    all_pairs: bool = False,
) -> RunReport:
    """Compare runs by judgements.

    Args:
        runs: Runs by their names, in order.
        qrels: Question id to document id to grade; every question that is judged counts.
        measures: Names such as "nDCG@10", "MRR@10", "R@100", "AP".
        all_pairs: Compare each pair of runs, instead of the first with each other one.

    Raises:
        ConfigError: There are no two runs, or a measure is unknown.

    """
    if len(runs) < 2:
        raise ConfigError(f"expected two runs at least to compare, got {len(runs)}")
    values = {(name, measure): _values(run, qrels, measure) for name, run in runs.items() for measure in measures}
    names = list(runs)
    pairs = list(combinations(names, 2)) if all_pairs else [(names[0], other) for other in names[1:]]
    chosen = [(first, second, measure) for measure in measures for first, second in pairs]
    differences = [values[second, measure] - values[first, measure] for first, second, measure in chosen]
    chances = [randomisation_p(each) for each in differences]
    comparisons = [
        Comparison(
            first=first,
            second=second,
            measure=measure,
            difference=float(each.mean()),
            error=float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else None,
            p=p,
            p_corrected=corrected,
            better=int((each > _ROUNDED).sum()),
            equal=int((abs(each) <= _ROUNDED).sum()),
            worse=int((each < -_ROUNDED).sum()),
        )
        for (first, second, measure), each, p, corrected in zip(
            chosen, differences, chances, holm(chances), strict=True
        )
    ]
    figures = [
        RunFigures(
            run=name,
            measure=measure,
            mean=float(found.mean()),
            missing=sum(question_id not in runs[name] for question_id in qrels),
        )
        for (name, measure), found in values.items()
    ]
    return RunReport(questions=len(qrels), runs=tuple(figures), comparisons=tuple(comparisons))


def _values(run: Run, qrels: Mapping[str, Mapping[str, int]], measure: str) -> Doubles:
    """Return the measure of each judged question, (q,), in the order of the judgements."""
    found = measure_values(parse_measure(measure), qrels, run)
    return np.array([found.get(question_id, 0.0) for question_id in qrels], dtype=np.float64)


def randomisation_p(differences: Doubles) -> float:
    """Return p of the two-sided paired randomisation test of differences, (n,); see Comparison."""
    changed = differences[abs(differences) > _ROUNDED]
    if not len(changed):
        return 1.0
    least = abs(changed.sum()) * (1 - _ROUNDED) - _ROUNDED
    if len(changed) <= _EXACT:
        signs = 1 - 2 * ((np.arange(1 << len(changed))[:, None] >> np.arange(len(changed))) & 1)
        return float((abs(signs @ changed) >= least).mean())
    rng, count = np.random.default_rng(_SEED), 0
    step = max(1, _AT_ONCE // len(changed))
    for begin in range(0, _SAMPLES, step):
        size = (min(step, _SAMPLES - begin), len(changed))
        drawn = 1.0 - 2.0 * rng.integers(0, 2, size=size, dtype=np.int8)
        count += int((abs(drawn @ changed) >= least).sum())
    # The differences as they are count as one of the assignments: p is never 0 (Phipson and Smyth 2010).
    return (count + 1) / (_SAMPLES + 1)


def holm(chances: Sequence[float]) -> list[float]:
    """Return p values corrected for their number (Holm 1979), in their order."""
    corrected, highest = [0.0] * len(chances), 0.0
    for place, number in enumerate(sorted(range(len(chances)), key=lambda number: chances[number])):
        highest = max(highest, min(1.0, (len(chances) - place) * chances[number]))
        corrected[number] = highest
    return corrected
