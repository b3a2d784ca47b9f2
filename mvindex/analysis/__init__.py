"""Whether the views of an index do their work: the papers' analyses, on questions of one's own."""

from mvindex.analysis.analyze import OnProgress, analyze
from mvindex.analysis.options import AnalysisOptions

__all__ = ["AnalysisOptions", "OnProgress", "analyze"]
