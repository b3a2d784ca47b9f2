"""Families without viewers: views of the whole document, and views of its snippets, sentences or splits.

Views of the whole are one vector, single states, or states clustered or attended.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from mvindex.corpus.text.sentences import merge_sentences
from mvindex.encoder.families.windows import (
    Arrangement,
    Frame,
    Slots,
    Window,
    context,
    cut_windows,
    make_pooled_window,
    whole_windows,
)
from mvindex.encoder.text import NO_SPAN, TokenizedText
from mvindex.records import Ints, Span


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


def arrange_snippets(text: TokenizedText, frame: Frame) -> Arrangement:
    """Make one view per snippet of CAMVR alg. 1: the mean of its own tokens, read with the text around it.

    Prompt and title are context; in a text of several windows they are repeated, up to a quarter of the window. A
    snippet that crosses windows is the mean over all its tokens; one without any token has no view.
    """
    if not len(text.ids):
        return arrange_single(text, frame)
    slots, spans = token_slots(text, merge_sentences(text.parts, frame.max_views))
    prefix = text.prefix[: frame.longest_prefix(len(text.ids))]
    outer = context(len(frame.head) + len(prefix)), context(len(frame.tail))
    windows = [
        Window(
            frame.with_specials(prefix, text.ids[begin:end]),
            np.concatenate([outer[0], slots[begin:end], outer[1]]),
        )
        for begin, end in cut_windows(text.starts, frame.room - len(prefix))
    ]
    return Arrangement(windows, spans, len(spans))


def arrange_sentences(text: TokenizedText, frame: Frame) -> Arrangement:
    """Make one view per sentence, read apart from the others behind prompt and title (the control of MVR table 5).

    Of more than k sentences the shortest are merged, as in CAMVR alg. 1. Each is pooled as a document of its own.
    """
    if not len(text.ids):
        return arrange_single(text, frame)
    slots, spans = token_slots(text, merge_sentences(text.parts, frame.max_views))
    bounds = np.searchsorted(slots, np.arange(len(spans) + 1))
    return Arrangement(list(_apart(text, frame, bounds)), spans, len(spans))


def arrange_splits(text: TokenizedText, frame: Frame) -> Arrangement:
    """Make one view per equal stretch of tokens, k of them, each read apart (control of MVR table 5), without spans."""
    if not len(text.ids):
        return arrange_single(text, frame)
    num_views = min(frame.max_views, len(text.ids))
    bounds = np.arange(num_views + 1) * len(text.ids) // num_views
    return Arrangement(list(_apart(text, frame, bounds)), [NO_SPAN] * num_views, num_views)


def token_slots(text: TokenizedText, snippets: Sequence[Span]) -> tuple[Slots, list[Span]]:
    """Return the slot of each token, and the spans of the slots; snippets without tokens take none."""
    begins = [begin for begin, _ in snippets]
    snippet_of_part = np.searchsorted(begins, [begin for begin, _ in text.parts], side="right") - 1
    snippet_of_token = np.repeat(snippet_of_part, np.diff(text.starts))
    is_used = np.bincount(snippet_of_token, minlength=len(snippets)) > 0
    slot_of_snippet = np.cumsum(is_used) - 1
    spans = [span for span, used in zip(snippets, is_used.tolist(), strict=True) if used]
    return slot_of_snippet[snippet_of_token].astype(np.int32), spans


def _apart(text: TokenizedText, frame: Frame, bounds: Ints) -> Iterator[Window]:
    """Yield a window per part ids[bounds[i]:bounds[i + 1]], or several for a long one; part i counts for slot i."""
    for slot, (first, last) in enumerate(itertools.pairwise(bounds.tolist())):
        prefix = text.prefix[: frame.longest_prefix(last - first)]
        for begin, end in cut_windows(np.array([0, last - first]), frame.room - len(prefix)):
            ids = frame.with_specials(prefix, text.ids[first + begin : first + end])
            yield make_pooled_window(ids, slot, frame.pooling)
