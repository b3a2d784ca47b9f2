"""Tuning on judged questions: the fusion of hybrid search, and the models of confidences.

For confidences, each question is searched twice: as it is, and without the documents that answer it, where no hit is
right. Half of the weight is that of questions with an answer, so that a confidence is right where every second
question has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import NamedTuple

import numpy as np

from mvindex.errors import ConfigError
from mvindex.records import Bools, CountCallback, Doubles, Ints, ProgressCallback, SearchResult, estimator_of, shown
from mvindex.search.confidence import FEATURES, Estimator, Model, unfitted
from mvindex.search.fusion import Fusion, Method, Mode
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
    """Return the sum of all gains above 0; raise ConfigError for what are no gains, finite numbers by id."""
    if not isinstance(judged, Mapping):
        raise ConfigError(f"question {number}: expected gains by id, such as {{'d1': 1}}, got {shown(judged)}")
    for doc_id, gain in judged.items():
        if not isinstance(gain, Real) or not abs(gain) <= _MOST:
            raise ConfigError(
                f"question {number}: the gain of {doc_id!r} is {shown(gain)}; expected a number up to {_MOST:g}"
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


# Hits of each query that a model is fitted on.
DEPTH = 3
# The share of the answerable questions that is kept, where the share of the others that is refused is measured.
KEPT = 0.95
_BINS = 10
# Of the mean log loss, on features in standard deviations: keeps weights finite where a feature separates all.
_PENALTY = 1e-3
_STEPS, _DONE = 50, 1e-9

Search = Callable[[Queries, Plan], list[SearchResult]]


class Sample(NamedTuple):
    """Hits of questions, the first DEPTH of each, n in all.

    Attributes:
        features: (n, f) float64, see FEATURES.
        answers: (n,) whether the hit answers.
        owners: (n,) the number of each hit's question.
        is_answerable: (q,) whether the collection has an answer to the question.

    """

    features: Doubles
    answers: Bools
    owners: Ints
    is_answerable: Bools

    @property
    def weights(self) -> Doubles:
        """The weight of each hit, (n,): those of answerable and of other questions weigh as much together."""
        shares = np.where(self.is_answerable, 0.5 / self.is_answerable.sum(), 0.5 / (~self.is_answerable).sum())
        weights: Doubles = shares[self.owners]
        return weights

    def some(self, are_chosen: Bools) -> Sample:
        """Return the hits of some questions, (q,), whose numbers stay."""
        rows = are_chosen[self.owners]
        return Sample(self.features[rows], self.answers[rows], self.owners[rows], self.is_answerable)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidencePoint:
    """How good the confidences of a mode are, of questions that their model was not fitted on (5 folds).

    auroc: the probability that the best confidence of an answerable question is above that of another one.
    calibration_error: the mean distance, over ten bins of first hits, of confidence and share that answers.
    refused: the share of the unanswerable questions below the confidence that keeps 95 % of the answerable ones.
    """

    mode: str
    auroc: float
    calibration_error: float
    refused: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceReport:
    """The models that were fitted and kept: one point for each mode; questions: with an answer, and without."""

    answerable: int
    unanswerable: int
    points: tuple[ConfidencePoint, ...]


def check_judged(questions: Sequence[str], relevant: Sequence[Mapping[str, float]]) -> None:
    """Raise ConfigError unless there are judgements for each question, and some answerable ones."""
    if len(questions) != len(relevant):
        raise ConfigError(f"{len(questions)} questions and judgements of {len(relevant)}; expected them for each")
    count = sum(_total(number, judged) > 0 for number, judged in enumerate(relevant, start=1))
    if count < _LEAST:
        raise ConfigError(
            f"{count} questions have a relevant document; expected {_LEAST} at least to fit confidences (some hundred "
            "are better): questions with their passage_id, or judgements with --qrels"
        )


def sample_hits(
    search: Search,
    queries: Queries,
    relevant: Sequence[Mapping[str, float]],
    plan: Plan,
    on_count: CountCallback = lambda count: None,
) -> Sample:
    """Return the hits of questions, and those that answerable ones have without the documents that answer.

    Args:
        search: The engine slot's search.
        queries: The questions, with vectors where the plan reads views.
        relevant: For each the documents that answer it, id to gain; without any it has no answer.
        plan: Of one mode.
        on_count: Called with numbers of questions.

    """
    plan = plan._replace(top_k=DEPTH, model=unfitted(plan.mode))
    answers = [_answers(judged) for judged in relevant]
    found = list(zip(search(queries, plan), answers, strict=True))
    # A question has the place among those with an answer that it has, without its answer, among the others.
    results = [(result, ids) for result, ids in found if ids]
    for number, ids in enumerate(answers):
        if ids:
            without = {"not": {"id": {"in": ids}}}
            condition = without if plan.filter is None else {"and": [plan.filter, without]}
            results += [
                (result, []) for result in search(queries[number : number + 1], plan._replace(filter=condition))
            ]
        on_count(1)
    results += [(result, ids) for result, ids in found if not ids]
    return sample_of(results, plan.mode)


def sample_of(results: Sequence[tuple[SearchResult, Sequence[str]]], mode: Mode) -> Sample:
    """Return the hits of results as a sample, each with the ids of the documents that answer; none for no answer."""
    features: list[tuple[float, ...]] = []
    answers: list[bool] = []
    owners: list[int] = []
    for number, (result, ids) in enumerate(results):
        for hit in result.hits:
            estimate = estimator_of(hit)
            if isinstance(estimate, Estimator):
                features.append(estimate.features(hit))
                answers.append(hit.id in ids)
                owners.append(number)
    return Sample(
        np.array(features, dtype=np.float64).reshape(-1, len(FEATURES[mode])),
        np.array(answers, dtype=bool),
        np.array(owners, dtype=np.int64),
        np.array([bool(ids) for _, ids in results], dtype=bool),
    )


def fit_model(features: Doubles, answers: Bools, weights: Doubles) -> Model:
    """Return the logistic model of the least weighted log loss, by Newton's method with a small ridge penalty.

    Args:
        features: (n, f).
        answers: (n,).
        weights: (n,), positive.

    """
    shares = weights / weights.sum()
    means = shares @ features
    scales = np.sqrt(shares @ (features - means) ** 2)
    scales[scales == 0] = 1.0
    rows = np.column_stack([(features - means) / scales, np.ones(len(features))])
    penalties = np.full(rows.shape[1], _PENALTY)
    penalties[-1] = _PENALTY / 1e3
    values = np.zeros(rows.shape[1])
    for _ in range(_STEPS):
        found = 1 / (1 + np.exp(-np.clip(rows @ values, -500, 500)))
        slope = rows.T @ (shares * (found - answers)) + penalties * values
        curve = (rows * (shares * found * (1 - found))[:, None]).T @ rows + np.diag(penalties)
        step = np.linalg.solve(curve, slope)
        values -= step
        if np.abs(step).max() < _DONE:
            break
    plain = values[:-1] / scales
    return Model(tuple(plain.tolist()), float(values[-1] - plain @ means))


def probabilities(model: Model, features: Doubles) -> Doubles:
    """Return the probability of each row, (n,)."""
    return np.array([model.probability(tuple(row)) for row in features.tolist()], dtype=np.float64)


def best_of(confidences: Doubles, owners: Ints, num_questions: int) -> Doubles:
    """Return the best confidence of each question, (q,); 0 for one without hits."""
    best = np.zeros(num_questions)
    np.maximum.at(best, owners, confidences)
    return best


def auroc(answerable: Doubles, others: Doubles) -> float:
    """Return the probability that one of the answerable values is above one of the others; ties count as half."""
    ranked = np.sort(others)
    below = np.searchsorted(ranked, answerable, side="left") + np.searchsorted(ranked, answerable, side="right")
    return float(below.mean() / 2 / len(ranked))


def refused_share(answerable: Doubles, others: Doubles) -> float:
    """Return the share of the others below the value that KEPT of the answerable reach."""
    return float((others < np.quantile(answerable, 1 - KEPT)).mean())


def calibration_error(confidences: Doubles, answers: Bools, weights: Doubles) -> float:
    """Return the expected calibration error: over ten equal bins, |confidence - share that answers| by weight."""
    bins = np.minimum((confidences * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, weights * (confidences - answers), _BINS)
    return float(np.abs(gaps).sum() / weights.sum())


def measure(sample: Sample, mode: str) -> ConfidencePoint:
    """Return how good confidences are, each by a model that was fitted without its question."""
    count = len(sample.is_answerable)
    # A question and the same without its answer are in one fold: both have the same number among their kind.
    numbers = np.empty(count, dtype=np.int64)
    for kind in (True, False):
        chosen = sample.is_answerable == kind
        numbers[chosen] = np.arange(chosen.sum())
    folds = np.random.default_rng(_SEED).permutation(count)[numbers] % _FOLDS
    confidences = np.zeros(len(sample.answers))
    for fold in range(_FOLDS):
        own = sample.some(folds != fold)
        model = fit_model(own.features, own.answers, own.weights)
        is_held_out = folds[sample.owners] == fold
        confidences[is_held_out] = probabilities(model, sample.features[is_held_out])
    best = best_of(confidences, sample.owners, count)
    answerable, others = best[sample.is_answerable], best[~sample.is_answerable]
    firsts = np.unique(sample.owners, return_index=True)[1]
    return ConfidencePoint(
        mode=mode,
        auroc=auroc(answerable, others),
        calibration_error=calibration_error(confidences[firsts], sample.answers[firsts], sample.weights[firsts]),
        refused=refused_share(answerable, others),
    )


def _answers(judged: Mapping[str, float]) -> list[str]:
    return [doc_id for doc_id, gain in judged.items() if gain > 0]
