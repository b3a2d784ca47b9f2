"""`mvindex tune`: how an engine is searched, and how many views it can do without, by measurement."""

from mvindex.tuning.pruning import PrunePoint, PruneReport, checked_budget, choose_pruning, tune_pruning
from mvindex.tuning.searching import TunePoint, TuneReport, Tuning, checked_target, choose, tune_search

__all__ = [
    "PrunePoint",
    "PruneReport",
    "TunePoint",
    "TuneReport",
    "Tuning",
    "checked_budget",
    "checked_target",
    "choose",
    "choose_pruning",
    "tune_pruning",
    "tune_search",
]
