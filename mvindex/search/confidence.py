"""Confidence: the estimated probability that a hit answers its query, by a logistic model.

The model reads what the search has computed anyway: the hit's score by views, its score by terms as a share of the
query's ceiling, and how far both are above those of the best other document. Its few numbers are kept beside the
encoder whose scores they were fitted on, or in the settings of an index (`mvindex tune --confidence`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from mvindex.errors import DamagedIndex, NotCalibrated
from mvindex.records import Hit, SearchResult
from mvindex.search.fusion import Mode

# The features of each mode, in the order of features_of().
FEATURES: Mapping[Mode, tuple[str, ...]] = {
    Mode.DENSE: ("dense", "dense_margin"),
    Mode.LEXICAL: ("lexical", "lexical_margin"),
    Mode.HYBRID: ("dense", "lexical", "dense_margin", "lexical_margin"),
}
_FORMAT = 1
_PACKAGED = "data/encoders/minilm_views/confidence.json"
# Far beyond, e**x is infinite, and the probability 0 or 1 in float64 long before.
_MOST_LOGIT = 500.0
_MOST_WEIGHT = 1e9


class Evidence(NamedTuple):
    """The best scores of one query, which its hits are compared with.

    Attributes:
        dense: The best scores by views of the query, falling: two after hybrid search, else one; () for none.
        lexical: Those by terms, as dense.
        ceiling: More than any score by terms of the query: that of each of its terms counting in full.

    """

    dense: tuple[float, ...] = ()
    lexical: tuple[float, ...] = ()
    ceiling: float = 0.0


def features_of(mode: Mode, dense: float, lexical: float, evidence: Evidence) -> tuple[float, ...]:
    """Return the features of a hit, as FEATURES names them.

    lexical is the score by terms as a share of the ceiling. A margin is the distance to the best other document, as far
    as it is known: of dense or lexical search alone, which need not find a second document, that to the best one, 0
    for itself. After hybrid search margins count by how near the hit is and how much of the query it has: that a
    document is ahead of others says little where both are poor.

    Args:
        mode: Dense, lexical or hybrid.
        dense: The hit's score by views; unused where mode is lexical.
        lexical: The hit's score by terms; unused where mode is dense.
        evidence: Of its query.

    """
    ceiling = evidence.ceiling or 1.0
    share, ahead = lexical / ceiling, _margin(lexical, evidence.lexical) / ceiling
    if mode is Mode.DENSE:
        return dense, _margin(dense, evidence.dense)
    if mode is Mode.LEXICAL:
        return share, ahead
    worth = dense * share
    return dense, share, worth * _margin(dense, evidence.dense), worth * ahead


def _margin(score: float, best: tuple[float, ...]) -> float:
    """Return the distance of a score to the best of the others, of which the best ones are known."""
    if not best:
        return 0.0
    return score - best[-1] if score >= best[0] else score - best[0]


@dataclass(frozen=True, slots=True)
class Model:
    """A logistic model: one weight for each feature, and a bias."""

    weights: tuple[float, ...]
    bias: float

    def probability(self, features: tuple[float, ...]) -> float:
        """Return 1 / (1 + exp(-x)), x being the weighted sum of the features and the bias."""
        logit = self.bias + sum(weight * value for weight, value in zip(self.weights, features, strict=True))
        return 1 / (1 + math.exp(-max(-_MOST_LOGIT, min(logit, _MOST_LOGIT))))


def unfitted(mode: Mode) -> Model:
    """Return a model of a mode that knows nothing."""
    return Model((0.0,) * len(FEATURES[mode]), 0.0)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The models of an encoder's scores.

    Attributes:
        encoder: The fingerprint of the encoder; None for vectors that were given.
        models: One for each mode that was fitted.

    """

    encoder: str | None
    models: Mapping[Mode, Model]

    def as_setting(self) -> dict[str, Any]:
        """Return the JSON object that an index, or a file beside an encoder, keeps."""
        models = {
            mode.value: {**dict(zip(FEATURES[mode], model.weights, strict=True)), "bias": model.bias}
            for mode, model in self.models.items()
        }
        return {"format_version": _FORMAT, "encoder": self.encoder, "models": models}


def parse_calibration(setting: object) -> Calibration | None:
    """Return the calibration of a value that as_setting() returns; None for another value."""
    if not isinstance(setting, dict) or set(setting) != {"format_version", "encoder", "models"}:
        return None
    encoder, named = setting["encoder"], setting["models"]
    if setting["format_version"] != _FORMAT or not isinstance(encoder, str | None) or not isinstance(named, dict):
        return None
    models = {}
    for mode, features in FEATURES.items():
        if mode.value in named:
            numbers = named[mode.value]
            if not isinstance(numbers, dict) or set(numbers) != {*features, "bias"}:
                return None
            if not all(type(number) in (int, float) and abs(number) <= _MOST_WEIGHT for number in numbers.values()):
                return None
            models[mode] = Model(tuple(float(numbers[name]) for name in features), float(numbers["bias"]))
    return Calibration(encoder, models) if len(models) == len(named) else None


def calibration_of(setting: object, encoder: Mapping[str, Any] | None, where: str) -> Calibration | None:
    """Return the calibration of an index; None where none was fitted on the scores of its encoder.

    Args:
        setting: The one that the index keeps, or None.
        encoder: The spec of its encoder; None for given vectors.
        where: The index, in errors.

    Raises:
        DamagedIndex: For a setting that is none.

    """
    fingerprint = None if encoder is None else encoder.get("fingerprint")
    if setting is not None:
        kept = parse_calibration(setting)
        if kept is None:
            raise DamagedIndex(f"{where}: setting 'confidence': expected weights of models, got {setting!r:.80}")
        if kept.encoder == fingerprint:
            return kept
    if encoder is not None:
        # Imported late: an index of vectors needs none of the encoders.
        from mvindex.encoder.checkpoint.hub import DEFAULT

        if encoder.get("source") == DEFAULT and (packaged := packaged_calibration()).encoder == fingerprint:
            return packaged
    return None


@lru_cache(1)
def packaged_calibration() -> Calibration:
    """Return the calibration of the default encoder."""
    from mvindex.encoder.checkpoint.hub import packaged_folder

    path = packaged_folder(_PACKAGED)
    found = parse_calibration(json.loads(path.read_text(encoding="utf-8")))
    if found is None:
        raise DamagedIndex(f"{path}: expected weights of models; install mvindex again")
    return found


@dataclass(frozen=True, slots=True)
class Estimator:
    """Estimates the confidence of the hits of one query."""

    mode: Mode
    model: Model
    evidence: Evidence

    def __call__(self, hit: Hit) -> float:
        """Return the confidence of a hit."""
        return self.model.probability(self.features(hit))

    def features(self, hit: Hit) -> tuple[float, ...]:
        """Return the features of a hit."""
        if self.mode is Mode.HYBRID:
            dense, lexical = hit.components
            return features_of(self.mode, dense.score, lexical.score, self.evidence)
        return features_of(self.mode, hit.score, hit.score, self.evidence)


def make_estimator(mode: Mode, model: Model | None, evidence: Evidence | None) -> Estimator | None:
    """Return what estimates the confidence of hits; None without a model or evidence."""
    return None if model is None or evidence is None else Estimator(mode, model, evidence)


def not_calibrated(where: str, mode: Mode, *, is_drpq: bool) -> NotCalibrated:
    """Return the error of min_confidence= where hits have no confidence."""
    if is_drpq:
        return NotCalibrated(
            f"{where}: min_confidence: expected scoring='max', whose scores have a calibration, got scoring='drpq'"
        )
    return NotCalibrated(
        f"{where}: min_confidence: expected a search that has a calibration, got mode={mode.value!r} without one for "
        "this encoder and these queries; `mvindex tune --confidence questions.jsonl` fits one, for single queries"
    )


def confident(results: list[SearchResult], least: float) -> list[SearchResult]:
    """Return the results without the hits below a confidence, and how many these were."""
    return [_confident(result, least) for result in results]


def _confident(result: SearchResult, least: float) -> SearchResult:
    kept = tuple(hit for hit in result.hits if hit.confidence is not None and hit.confidence >= least)
    return replace(result, hits=kept, below_confidence=len(result.hits) - len(kept))
