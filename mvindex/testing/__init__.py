"""Contract suites: subclass one per implementation, so that each answers the same questions. Needs pytest.

class TestMyIndex(IndexContract):
    def open_index(self, tmp_path): return mvindex.create(tmp_path / "x.mvx", dim=self.dim)
"""

from mvindex.testing.asking import TrueScores, assert_same, brute_force, true_scores
from mvindex.testing.contracts import EngineContract, IndexContract, random_views, unit
from mvindex.testing.hybrid import HybridContract, assert_alike

__all__ = [
    "EngineContract",
    "HybridContract",
    "IndexContract",
    "TrueScores",
    "assert_alike",
    "assert_same",
    "brute_force",
    "random_views",
    "true_scores",
    "unit",
]
