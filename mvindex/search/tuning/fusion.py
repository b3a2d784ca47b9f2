"""The choice of a fusion for hybrid search by measuring it on judged questions: `mvindex tune --fusion`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import NamedTuple

import numpy as np

from mvindex.errors import ConfigError
from mvindex.records import Doubles, Ints, ProgressCallback
from mvindex.search.fusion import Fusion, Method
from mvindex.search.hybrid import JudgedQuestion, fuse
from mvindex.search.plan import Plan
from mvindex.search.request import Queries

# Fewer questions say nothing about which of some hundred settings is the best.
_LEAST = 20
# Sums of gains stay finite.
_MOST = 1e9
_FOLDS = 5
_SEED = 7
_SHARES = np.linspace(0, 2, 11).round(1).tolist()
# Of each number the default first.
_DEPTHS = (100, 300)
_SATURATIONS = ((1.2, 0.75), (0.9, 0.4), (0.9, 0.75), (2.0, 0.75), (1.2, 0.4))
# A constant of rrf that puts more weight on the first ranks than the default.
_STEEP = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionPoint:
    """The measurement of a fusion: mean nDCG at top_k. The rest is as in Fusion."""

    method: str
    weights: tuple[float, float]
    depth: int
    constant: float
    k1: float
    b: float
    ndcg: float

    @property
    def fusion(self) -> Fusion:
        """The fusion, as search() takes it."""
        return Fusion(Method(self.method), self.weights, self.depth, self.constant, self.k1, self.b)


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
    judged: Callable[[Sequence[Fusion]], Iterable[Sequence[JudgedQuestion]]], top_k: int, current: Fusion
) -> FusionReport:
    """Measure fusions; nothing is changed.

    judged: returns for each question what each fusion would order; fusions of the same lists share theirs.
    """
    fusions = [*_fusions(), current]
    lists = list(dict.fromkeys(map(_lists_of, fusions)))
    places = [lists.index(_lists_of(fusion)) for fusion in fusions]
    columns, missing = [], 0
    for question in judged([Fusion(depth=depth, k1=k1, b=b) for depth, k1, b in lists]):
        pairs = zip(fusions, places, strict=True)
        columns.append([_ndcg(question[place], fusion, top_k) for fusion, place in pairs])
        missing += not any(each.gains.any() for each in question)
    values = np.array(columns).T
    points = [
        FusionPoint(
            method=fusion.method.value,
            weights=fusion.weights,
            depth=fusion.depth,
            constant=fusion.constant,
            k1=fusion.k1,
            b=fusion.b,
            ndcg=mean,
        )
        for fusion, mean in zip(fusions, values.mean(axis=1).tolist(), strict=True)
    ]
    held_out = _held_out(values[:-1])
    gains = held_out - values[-1]
    gain = float(gains.mean())
    order = np.argsort(-values[:-1].mean(axis=1), kind="stable").tolist()
    return FusionReport(
        top_k=top_k,
        questions=len(columns),
        missing=missing,
        points=tuple(points[place] for place in order),
        current=points[-1],
        held_out=float(held_out.mean()),
        gain=gain,
        error=float(gains.std(ddof=1) / len(gains) ** 0.5),
        chosen=points[order[0]] if gain > 0 else None,
    )


def measure_fusion(
    judged: Callable[..., Iterable[Sequence[JudgedQuestion]]],
    questions: Queries,
    relevant: Sequence[Mapping[str, float]],
    plan: Plan,
    on_progress: ProgressCallback,
) -> FusionReport:
    """Measure fusions on judged questions of an index; see IndexAdmin.tune_fusion().

    judged: LocalSearch.judged(), or that of another engine.
    """
    checked_judgements(questions.texts or (), relevant)

    def counted(fusions: Sequence[Fusion]) -> Iterable[Sequence[JudgedQuestion]]:
        for number, each in enumerate(judged(questions, relevant, plan, fusions), start=1):
            yield each
            on_progress("measuring", number, len(questions))

    return tune_fusion(counted, plan.top_k, plan.fusion)


class _Lists(NamedTuple):
    """The numbers that the two lists of a fusion depend on."""

    depth: int
    k1: float
    b: float


def _lists_of(fusion: Fusion) -> _Lists:
    return _Lists(fusion.depth, fusion.k1, fusion.b)


def _fusions() -> list[Fusion]:
    """Return the fusions to try, the default first: of equally good ones the first is chosen."""
    weights = sorted(((share, round(2 - share, 1)) for share in _SHARES), key=lambda pair: abs(pair[0] - 1))
    both = [Fusion(method, pair) for pair in weights if all(pair) for method in Method]
    ranks = [replace(each, constant=_STEEP) for each in both if each.method is Method.RRF]
    single = [Fusion(Method.ZSCORE, pair) for pair in weights if not all(pair)]
    return [
        replace(each, depth=depth, k1=k1, b=b)
        for depth in _DEPTHS
        for k1, b in _SATURATIONS
        for each in [*both, *ranks, *single]
    ]


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
