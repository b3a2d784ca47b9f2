"""Measure whether several views per document pay, by the papers' analyses, on your own questions."""

from mvindex.measure.analysis.analyze import analyze
from mvindex.measure.analysis.questions import AnalysisOptions

__all__ = ["AnalysisOptions", "analyze"]
