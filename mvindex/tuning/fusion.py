"""The choice of a fusion for hybrid search by measuring it on judged questions: `mvindex tune --fusion`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from mvindex.errors import ConfigError
from mvindex.records import Doubles, Ints
from mvindex.scoring.fusion import Fusion, Method, fuse
from mvindex.search.hybrid import JudgedQuestion

# Fewer questions say nothing about which of some thirty settings is the best.
_LEAST = 20
# Sums of gains stay finite.
_MOST = 1e9
_FOLDS = 5
_SEED = 7
_SHARES = np.linspace(0, 2, 11).round(1).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionPoint:
    """The measurement of a fusion: mean nDCG at top_k. weights: of the dense and of the lexical score."""

    method: str
    weights: tuple[float, float]
    ndcg: float

    @property
    def fusion(self) -> Fusion:
        """The fusion, as search() takes it."""
        return Fusion(Method(self.method), self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionReport:
    """All fusions that were measured, best first. current: the index's own, as it was before.

    held_out: nDCG of a choice made without the question that it is measured on (5 folds), and so what the choice may
    be expected to give; gain: by how much that is above the current one, error: its standard error. chosen: the best
    point, where the gain is above 0; None else, and nothing is changed. missing: questions none of whose relevant
    documents is a candidate, dense or lexical, so that no fusion can find one; they count, with 0.
    """

    top_k: int
    questions: int
    missing: int
    points: tuple[FusionPoint, ...]
    current: FusionPoint
    held_out: float
    gain: float
    error: float
    chosen: FusionPoint | None


def checked_judgements(questions: Sequence[str], relevant: Sequence[Mapping[str, float]]) -> None:
    """Raise ConfigError for too few questions, values that are no judgements, or gains that cannot be added up."""
    if len(questions) != len(relevant):
        raise ConfigError(f"{len(questions)} questions and judgements of {len(relevant)}; expected them for each")
    if len(questions) < _LEAST:
        raise ConfigError(
            f"{len(questions)} questions are judged; expected {_LEAST} at least to choose a fusion (some hundred are "
            "better): questions with their passage_id, or judgements with --qrels"
        )
    for number, judged in enumerate(relevant, start=1):
        if not _total(number, judged) > 0:
            raise ConfigError(f"question {number}: no document is judged relevant; leave it out")


def _total(number: int, judged: Mapping[str, float]) -> float:
    """Return the sum of all gains above 0; raise ConfigError for a gain that is no finite number."""
    for doc_id, gain in judged.items():
        if not isinstance(gain, Real) or not abs(gain) <= _MOST:
            raise ConfigError(
                f"question {number}: the gain of {doc_id!r} is {gain!r:.60}; expected a number up to {_MOST:g}"
            )
    return sum(gain for gain in judged.values() if gain > 0)


def tune_fusion(
    judged: Sequence[JudgedQuestion], top_k: int, current: Fusion, on_progress: Callable[[str, int, int], None]
) -> FusionReport:
    """Measure fusions; nothing is changed."""
    fusions = [*_fusions(), current]
    values = np.empty((len(fusions), len(judged)))
    for number, question in enumerate(judged):
        values[:, number] = [_ndcg(question, fusion, top_k) for fusion in fusions]
        on_progress("measuring", number + 1, len(judged))
    points = [
        FusionPoint(method=fusion.method.value, weights=fusion.weights, ndcg=mean)
        for fusion, mean in zip(fusions, values.mean(axis=1).tolist(), strict=True)
    ]
    held_out = _held_out(values[:-1])
    gains = held_out - values[-1]
    gain = float(gains.mean())
    order = np.argsort(-values[:-1].mean(axis=1), kind="stable").tolist()
    return FusionReport(
        top_k=top_k,
        questions=len(judged),
        missing=sum(not question.gains.any() for question in judged),
        points=tuple(points[place] for place in order),
        current=points[-1],
        held_out=float(held_out.mean()),
        gain=gain,
        error=float(gains.std(ddof=1) / len(gains) ** 0.5),
        chosen=points[order[0]] if gain > 0 else None,
    )


def _fusions() -> list[Fusion]:
    """Return the fusions to try, the default first: of equally good ones the first is chosen."""
    weights = sorted(((share, round(2 - share, 1)) for share in _SHARES), key=lambda pair: abs(pair[0] - 1))
    both = [pair for pair in weights if all(pair)]
    single = [Fusion(Method.ZSCORE, pair) for pair in weights if not all(pair)]
    return [Fusion(method, pair) for pair in both for method in Method] + single


def _held_out(values: Doubles) -> Doubles:
    """Return each question's value, (q,), under the fusion that is best on the other folds.

    values: (fusions, q).
    """
    folds: Ints = np.random.default_rng(_SEED).permutation(values.shape[1]) % _FOLDS
    found = np.empty(values.shape[1])
    for fold in range(_FOLDS):
        best = int(np.argmax(values[:, folds != fold].mean(axis=1)))
        found[folds == fold] = values[best, folds == fold]
    return found


def _ndcg(question: JudgedQuestion, fusion: Fusion, top_k: int) -> float:
    """Return nDCG at top_k (Järvelin and Kekäläinen 2002), with gains as judged, as trec_eval does."""
    scores = fuse(question.candidates.rows, question.candidates.lists, fusion).scores
    gains = question.gains[question.candidates.order(scores)[:top_k]]
    return float(_discounted(gains) / _discounted(question.ideal[:top_k]))


def _discounted(gains: Doubles) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())
