"""Tuning by measurement: search parameters of an engine, and the fusion of hybrid search."""

from mvindex.search.tuning.fusion import FusionPoint, FusionReport, checked_judgements, measure_fusion, tune_fusion
from mvindex.search.tuning.search_params import (
    TuneGoal,
    TunePoint,
    TuneReport,
    Tuning,
    check_time_limit,
    checked_target,
    choose,
    tune_search,
)

__all__ = [
    "FusionPoint",
    "FusionReport",
    "TuneGoal",
    "TunePoint",
    "TuneReport",
    "Tuning",
    "checked_judgements",
    "check_time_limit",
    "checked_target",
    "choose",
    "measure_fusion",
    "tune_fusion",
    "tune_search",
]
