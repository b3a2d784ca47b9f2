"""Options of an analysis."""

from __future__ import annotations

from dataclasses import dataclass

from mvindex.errors import ConfigError
from mvindex.measure.metrics import DEFAULT_CUTOFFS

# Distances of unit vectors, for cosines from .99875 to .5.
DEFAULT_EPS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOptions:
    """How much an analysis samples, and how it scores documents.

    Attributes:
        cutoffs: The k of every R@k.
        scoring: `max` or `drpq`.
        temperature: Of `drpq`; None is the index's own.
        max_questions: Of more questions a sample is taken.
        max_documents: Of more documents a sample is searched; the relevant documents are in it.
        attention_documents: Documents encoded again for their attention (CAMVR takes 1,000); 0 for none.
        scale: Factor of scores before the softmax of LV; None is 20 for unit vectors, else 1.
        eps: Distances for pruning near-duplicate views.
        regex: Whether answers are regular expressions.
        seed: Of the samples and the bootstrap.

    Raises:
        ConfigError: A number is out of range.

    """

    cutoffs: tuple[int, ...] = DEFAULT_CUTOFFS
    scoring: str = "max"
    temperature: float | None = None
    max_questions: int = 2000
    max_documents: int = 20_000
    attention_documents: int = 100
    scale: float | None = None
    eps: tuple[float, ...] = DEFAULT_EPS
    regex: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("max_questions", 1), ("max_documents", 1), ("attention_documents", 0), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name}: expected a whole number from {least} on, got {value!r}")
        if self.scale is not None and not 0 < self.scale < float("inf"):
            raise ConfigError(f"scale: expected a finite number above 0, got {self.scale!r}")
        if not self.cutoffs or any(type(k) is not int or k < 1 for k in self.cutoffs):
            raise ConfigError(f"cutoffs: expected whole numbers from 1, such as 1,5,20,100, got {list(self.cutoffs)}")
