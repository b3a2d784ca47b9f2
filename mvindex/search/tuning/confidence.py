"""The models of confidence, fitted and measured on judged questions: `mvindex tune --confidence`.

Each question is searched twice: as it is, and without the documents that answer it, where no hit is right. Half of the
weight is that of questions with an answer, so that a confidence is right where every second question has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mvindex.errors import ConfigError
from mvindex.records import Bools, CountCallback, Doubles, Ints, SearchResult, estimator_of
from mvindex.search.confidence import FEATURES, Estimator, Model, unfitted
from mvindex.search.fusion import Mode
from mvindex.search.plan import Plan
from mvindex.search.request import Queries

# Hits of each query that a model is fitted on.
DEPTH = 3
# The share of the answerable questions that is kept, where the share of the others that is refused is measured.
KEPT = 0.95
_LEAST = 20
_FOLDS, _SEED, _BINS = 5, 7, 10
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
    count = sum(bool(_answers(judged)) for judged in relevant)
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
    plan = replace(plan, top_k=DEPTH, model=unfitted(plan.mode))
    answers = [_answers(judged) for judged in relevant]
    found = list(zip(search(queries, plan), answers, strict=True))
    # A question has the place among those with an answer that it has, without its answer, among the others.
    results = [(result, ids) for result, ids in found if ids]
    for number, ids in enumerate(answers):
        if ids:
            without = {"not": {"id": {"in": ids}}}
            condition = without if plan.filter is None else {"and": [plan.filter, without]}
            results += [
                (result, []) for result in search(queries[number : number + 1], replace(plan, filter=condition))
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
