"""Families whose views each look at the whole document: one vector, single states, or states clustered or attended."""

from __future__ import annotations

import numpy as np

from mvindex.encoder.families.windows import Arrangement, Frame, Window, context, make_pooled_window, whole_windows
from mvindex.encoder.text import TokenizedText
from mvindex.records import Ints


def arrange_single(text: TokenizedText, frame: Frame) -> Arrangement:
    """Make one view: the mean of all states, special tokens, prompt and title too, or of first states (CLS: DPR).

    A first state is that of each window. Pooling also has the last, and the mean weighted by place.
    """
    windows = [make_pooled_window(ids, 0, frame.pooling) for ids in whole_windows(text, frame)]
    return Arrangement(windows, [text.whole], 1)


def arrange_first_k(text: TokenizedText, frame: Frame) -> Arrangement:
    """Make views of the states of the first k tokens, [CLS] among them (ME-BERT); fewer views for a shorter input.

    As in the paper a document is one window: what lies beyond it is not read.
    """
    ids = whole_windows(text, frame)[0]
    num_views = min(frame.max_views, len(ids))
    slots = context(len(ids))
    slots[:num_views] = np.arange(num_views)
    return Arrangement([Window(ids, slots)], [text.whole] * num_views, num_views)


def arrange_poly(text: TokenizedText, frame: Frame) -> Arrangement:
    """Make a row per token, special tokens included: each of the k codes attends to all of them (Poly-encoder)."""
    return _token_rows(text, frame, [np.arange(len(ids)) for ids in whole_windows(text, frame)], frame.max_views)


def arrange_kmeans(text: TokenizedText, frame: Frame) -> Arrangement:
    """Make a row per token of title and text, special tokens and prompt left out, for k-means (DRPQ eq. 1-2).

    A document of fewer tokens than k has a view per token; one without any token has its first special token.
    """
    inner = slice(len(frame.head) + frame.prompt_tokens, -len(frame.tail) or None)
    places = [np.arange(len(ids))[inner] for ids in whole_windows(text, frame)]
    num_tokens = sum(map(len, places))
    if not num_tokens:
        return _token_rows(text, frame, [np.array([0])], 1)
    return _token_rows(text, frame, places, min(frame.max_views, num_tokens))


def _token_rows(text: TokenizedText, frame: Frame, places: list[Ints], num_views: int) -> Arrangement:
    """Return the windows with the tokens at these places numbered on end, one row each."""
    windows, num_rows = [], 0
    for ids, chosen in zip(whole_windows(text, frame), places, strict=False):
        slots = context(len(ids))
        slots[chosen] = np.arange(num_rows, num_rows + len(chosen))
        windows.append(Window(ids, slots))
        num_rows += len(chosen)
    return Arrangement(windows, [text.whole] * num_views, num_rows)
