"""Measure whether several views per document pay, by the papers' analyses, on your own questions."""

from mvindex.analysis.analyze import analyze
from mvindex.analysis.options import AnalysisOptions

__all__ = ["AnalysisOptions", "analyze"]
