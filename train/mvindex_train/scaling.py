"""How much of what LoRA learnt is kept: a factor from 0, the base's weights, to 1, the trained ones.

Weights between two models often keep what each does well (WiSE-FT, Wortsman et al. 2022, section 3): a smaller factor
gives up a little of the gain on the training's questions and keeps the base's quality on others.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.corpus import read_documents
from mvindex.encoder import Encoder
from mvindex.errors import CorpusError
from mvindex.index.factory import create
from mvindex.measure.metrics import measure_values, parse_measure
from mvindex.measure.questions import read_qrels, read_questions
from mvindex.records import Floats
from mvindex_train.data.context import find_file

SCALES = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
_DEPTH = 10


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """A collection in BEIR's layout with judged questions, which the trained encoder must not answer worse."""

    name: str
    corpus: str
    questions: str
    qrels: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Trial:
    """A factor, R@cutoff of the dev questions with it, and nDCG@10 of each judged question, (q,), by set."""

    scale: float
    recall: float
    judged: dict[str, Floats]

    def __str__(self) -> str:
        means = (f", {name} nDCG@10 {100 * values.mean():.2f} %" for name, values in self.judged.items())
        return f"scale {self.scale:g}: recall {100 * self.recall:.2f} %{''.join(means)}"

    def as_json(self) -> dict[str, Any]:
        """Return the factor and its figures, rounded to 4 digits."""
        means = {name: round(float(values.mean()), 4) for name, values in self.judged.items()}
        return {"scale": self.scale, "recall": round(self.recall, 4), "nDCG@10": means}


def read_judged_set(path: str) -> JudgedSet:
    """Return the set of a BEIR folder with qrels/dev.tsv, or of one of its qrels files.

    Raises CorpusError when a file of it is missing or invalid.
    """
    qrels = Path(path) if Path(path).is_file() else Path(find_file(Path(path, "qrels"), "dev.tsv"))
    folder = qrels.parent.parent
    corpus, questions = (find_file(folder, name) for name in ("corpus.jsonl", "queries.jsonl"))
    return JudgedSet(folder.name, corpus, questions, read_qrels(str(qrels)))


def choose_scale(trials: Sequence[Trial]) -> tuple[float, bool]:
    """Return the factor of best recall among those that keep the judged sets, and whether there was one.

    The first trial is the base. A factor keeps the sets when the mean of their means is not below the base's, and no
    set is down by more than one standard error of the paired differences. Where none does, the smallest is returned.
    Equal recalls take the smaller factor.
    """
    base, *rest = trials
    kept = [trial for trial in rest if _keeps(base, trial)]
    if not kept:
        return min(trial.scale for trial in rest), False
    return max(kept, key=lambda trial: (trial.recall, -trial.scale)).scale, True


def _keeps(base: Trial, trial: Trial) -> bool:
    differences = [trial.judged[name] - values for name, values in base.judged.items()]
    if not differences:
        return True
    errors = [each.std(ddof=1) / len(each) ** 0.5 if len(each) > 1 else 0.0 for each in differences]
    is_down = any(each.mean() < -error for each, error in zip(differences, errors, strict=True))
    return not is_down and np.mean([each.mean() for each in differences]) >= 0


def judged_values(encoder: Encoder, judged: JudgedSet, folder: Path) -> Floats:
    """Return nDCG@10 of each judged question, (q,) fp64 in the order of their ids, from an index made in the folder."""
    questions = [question for question in read_questions([judged.questions]) if question.id in judged.qrels]
    if not questions:
        raise CorpusError(f"{judged.questions}: expected a question with judgements, got none")
    place = folder / f"scaling-{judged.name}.mvx"
    shutil.rmtree(place, ignore_errors=True)
    try:
        with create(place, encoder=encoder, lexical=None) as index:
            index.add(read_documents(judged.corpus))
            results = index.search(index.encode_queries([question.text for question in questions]), top_k=_DEPTH)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    rankings = {
        question.id: [hit.id for hit in result.hits] for question, result in zip(questions, results, strict=True)
    }
    found = measure_values(parse_measure(f"nDCG@{_DEPTH}"), judged.qrels, rankings)
    return np.array([found[question_id] for question_id in sorted(found)])
