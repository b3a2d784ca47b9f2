"""`mvindex tune`, by measurement: how an engine and hybrid search look, and how many views an engine can do without."""

from mvindex.tuning.fusion import FusionPoint, FusionReport, Judged, checked_judgements, tune_fusion
from mvindex.tuning.pruning import PrunePoint, PruneReport, checked_budget, choose_pruning, tune_pruning
from mvindex.tuning.search_params import TunePoint, TuneReport, Tuning, checked_target, choose, tune_search

__all__ = [
    "FusionPoint",
    "FusionReport",
    "Judged",
    "PrunePoint",
    "PruneReport",
    "TunePoint",
    "TuneReport",
    "Tuning",
    "checked_budget",
    "checked_judgements",
    "checked_target",
    "choose",
    "choose_pruning",
    "tune_fusion",
    "tune_pruning",
    "tune_search",
]
