"""Families of viewer tokens: their states are the views.

In the papers a viewer reads the whole input, and only its state is the view. Two settings depart from them, for
backbones on which such viewers stay alike in short training (docs/how-to/training.md, viewers):

- own_snippet: a viewer reads its own snippet (of `viewers`, the i-th of k equal stretches of tokens) and itself only,
  and no token reads a viewer. [CLS] stays before the text, which is then read as without viewers;
- residual: a view is the weighted mean of the viewer's state, once, and of the mean of that snippet's own states, so
  many times. The larger it is, the closer training starts to the family `snippets`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mvindex.corpus.text.sentences import merge_sentences
from mvindex.encoder.families.parts import token_slots
from mvindex.encoder.families.windows import CONTEXT, Arrangement, Frame, Slots, Window, context, cut_windows
from mvindex.encoder.text import NO_SPAN, Ids, TokenizedText
from mvindex.records import Bools, Ints, Span


def arrange_viewers(text: TokenizedText, frame: Frame) -> Arrangement:
    """Make views of the states of k viewer tokens before the text, all at position 0; the text starts at 1 (MVR eq. 3).

    They stand in [CLS]'s place. A text of several windows, beyond the paper, has them in each: a view is the mean of
    its viewer's states.
    """
    num_views, num_tokens = len(frame.viewers), len(text.ids)
    prefix = text.prefix[: frame.longest_prefix(num_tokens)]
    stretches = (np.arange(num_tokens) * num_views // max(num_tokens, 1)).astype(np.int32)
    # With own_snippet [CLS] stands before the viewers, at their position; else they stand in its place.
    first, rest = frame.head[: int(frame.own_snippet)], frame.head[1:]
    lead, before, after = context(len(first)), context(len(rest) + len(prefix)), context(len(frame.tail))
    windows = []
    for begin, end in cut_windows(text.starts, frame.room - len(prefix)):
        ids = np.concatenate([first, frame.viewers, rest, prefix, text.ids[begin:end], frame.tail])
        scopes = np.concatenate([lead, np.arange(num_views, dtype=np.int32), before, stretches[begin:end], after])
        from_text = np.arange(len(ids), dtype=np.int32) - len(first) - num_views
        is_viewer = (from_text < 0) & (from_text >= -num_views)
        windows.append(_window(ids, scopes, is_viewer, frame, np.maximum(from_text + 1, 0)))
    if frame.own_snippet:
        windows = [_without_strangers(window, stretches) for window in windows]
    return Arrangement(windows, [text.whole] * num_views, num_views)


def arrange_context_viewers(text: TokenizedText, frame: Frame) -> Arrangement:
    """Make views of the states of viewer tokens, one before each snippet, at ordinary positions (CAMVR eq. 10-12).

    The title is the first sentence, so the first viewer stands before it. Viewers of empty snippets stand at the end,
    as in the paper, but give no view. Every window keeps room for all viewers. A snippet that crosses windows has its
    viewer in each: its view is the mean.
    """
    ids, starts, slots, spans = _prepend_title(text, frame)
    prompt = text.prefix[: frame.prompt_tokens]
    ranges = list(cut_windows(starts, frame.room - len(prompt)))
    unused = [frame.viewers[:0]] * (len(ranges) - 1) + [frame.viewers[len(spans) :]]
    windows = [
        _interleave(ids[begin:end], slots[begin:end], (prompt, at_end), frame)
        for (begin, end), at_end in zip(ranges, unused, strict=True)
    ]
    return Arrangement(windows, spans, len(spans))


def _prepend_title(text: TokenizedText, frame: Frame) -> tuple[Ids, Ints, Slots, list[Span]]:
    """Return title and text as one: ids, where sentences start, the slot of each token, and the slots' spans."""
    title = text.prefix[frame.prompt_tokens :]
    if not len(title):
        if not len(text.ids):
            return text.ids, np.array([0, 0]), np.zeros(0, np.int32), [text.whole]
        slots, spans = token_slots(text, merge_sentences(text.parts, len(frame.viewers)))
        return text.ids, text.starts, slots, spans
    # The title's characters come before the text's, so the text's are shifted while snippets are merged.
    shift = max(text.title_chars, 1) + 1
    sentences = [(0, shift - 1), *((begin + shift, end + shift) for begin, end in text.parts)]
    ids, starts = np.concatenate([title, text.ids]), np.concatenate([[0], text.starts + len(title)])
    joined = TokenizedText(text.prefix[:0], ids, starts, sentences, text.whole)
    slots, spans = token_slots(joined, merge_sentences(sentences, len(frame.viewers)))
    return ids, starts, slots, [_unshift(span, shift, text.parts[0][0]) for span in spans]


def _unshift(span: Span, shift: int, first: int) -> Span:
    """Return the span in the text: from the title it begins at the first sentence; NO_SPAN without a text."""
    begin, end = span[0] - shift, span[1] - shift
    return NO_SPAN if end <= 0 else (max(begin, first), end)


def _without_strangers(window: Window, stretches: Slots) -> Window:
    """Return the window without the viewers whose stretch is in other windows: they would read only themselves."""
    if window.scopes is None or window.is_viewer is None:
        return window
    is_here = np.isin(window.scopes, window.scopes[~window.is_viewer])
    is_stranger = window.is_viewer & ~is_here & np.isin(window.scopes, stretches)
    return replace(window, slots=np.where(is_stranger, CONTEXT, window.slots).astype(np.int32))


def _interleave(ids: Ids, slots: Slots, around: tuple[Ids, Ids], frame: Frame) -> Window:
    """Return the tokens with each snippet's viewer before its first one; around: the prompt, and viewers for the end.

    The first viewer takes [CLS]'s place: what else the tokenizer puts before a text, and the prompt, come after it;
    with own_snippet all of these come before it. Without any text the first viewer gives the
    only view.
    """
    prompt, unused = around
    firsts = np.flatnonzero(np.diff(slots, prepend=CONTEXT)) if len(ids) else np.zeros(1, dtype=np.int64)
    shown = slots[firsts] if len(ids) else np.zeros(1, dtype=np.int32)
    is_viewer = np.insert(np.zeros(len(ids), dtype=bool), firsts, True)
    body, scopes = np.insert(ids, firsts, frame.viewers[shown]), np.insert(slots, firsts, shown)
    cut = 0 if frame.own_snippet else 1
    before = np.concatenate([frame.head[cut:], prompt])
    after = np.concatenate([unused, frame.tail])
    at_end = np.arange(len(after)) < len(unused)
    return _window(
        np.concatenate([body[:cut], before, body[cut:], after]),
        np.concatenate([scopes[:cut], context(len(before)), scopes[cut:], context(len(after))]),
        np.concatenate([is_viewer[:cut], np.zeros(len(before), bool), is_viewer[cut:], at_end]),
        frame,
    )


def _window(ids: Ids, scopes: Slots, is_viewer: Bools, frame: Frame, positions: Ids | None = None) -> Window:
    """Return the window whose viewers make the views; scopes: the view that each token belongs to."""
    weights = np.ones(len(ids), dtype=np.float32)
    slots = np.where(is_viewer, scopes, CONTEXT).astype(np.int32)
    if frame.residual:
        slots = scopes
        # The row is a mean over viewer and tokens: of n tokens' mean, residual times, and the viewer's state, once.
        counts = np.bincount(scopes[(scopes != CONTEXT) & ~is_viewer], minlength=len(frame.viewers))
        weights[is_viewer] = np.maximum(counts[scopes[is_viewer]], 1) / frame.residual
    if not frame.own_snippet:
        return Window(ids, slots, weights, positions)
    return Window(ids, slots, weights, positions, scopes, is_viewer)
