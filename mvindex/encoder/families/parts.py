"""Families whose views each stand for a part of the document: snippets read together, or parts read apart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from mvindex.corpus.text.sentences import merge_sentences
from mvindex.encoder.families.whole import arrange_single
from mvindex.encoder.families.windows import (
    Arrangement,
    Frame,
    Slots,
    Window,
    context,
    cut_windows,
    make_pooled_window,
)
from mvindex.encoder.text import NO_SPAN, TokenizedText
from mvindex.records import Ints, Span


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
