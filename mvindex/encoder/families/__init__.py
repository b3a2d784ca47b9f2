"""Families: which tokens the model reads together, and which of their states make which view.

A family is a function from tokens to windows; FAMILIES names it. Each token of a window carries the row that its state
is averaged into. In most families a row is a view; in those of TOKEN_FAMILIES it is a token, and the views are made of
a document's tokens afterwards (clusters.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from mvindex.checkpoint.settings import Family
from mvindex.encoder.families.parts import arrange_sentences, arrange_snippets, arrange_splits
from mvindex.encoder.families.viewers import arrange_context_viewers, arrange_viewers
from mvindex.encoder.families.whole import arrange_first_k, arrange_kmeans, arrange_poly, arrange_single
from mvindex.encoder.families.windows import CONTEXT, Arrangement, Frame, Slots, Window, cut_windows
from mvindex.encoder.text import TokenizedText

Arrange: TypeAlias = Callable[[TokenizedText, Frame], Arrangement]

FAMILIES: Mapping[Family, Arrange] = {
    Family.SNIPPETS: arrange_snippets,
    Family.SINGLE: arrange_single,
    Family.FIRST_K: arrange_first_k,
    Family.POLY: arrange_poly,
    Family.KMEANS: arrange_kmeans,
    Family.VIEWERS: arrange_viewers,
    Family.CONTEXT_VIEWERS: arrange_context_viewers,
    Family.SENTENCES: arrange_sentences,
    Family.SPLITS: arrange_splits,
}

TOKEN_FAMILIES = frozenset({Family.POLY, Family.KMEANS})

__all__ = [
    "CONTEXT",
    "FAMILIES",
    "TOKEN_FAMILIES",
    "Arrangement",
    "Frame",
    "Slots",
    "Window",
    "arrange_single",
    "arrange_snippets",
    "cut_windows",
]
