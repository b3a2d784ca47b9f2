"""Families: which tokens the model reads together, and which of their states make which view.

A family is a function from tokens to windows; FAMILIES names it. Each token of a window carries the slot of the view
that its state is averaged into. So a family that reads single states (the first k tokens, viewer tokens), or reads
snippets apart from each other, is another way to fill `ids` and `slots`, and touches nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mvindex.checkpoint.settings import Family, Pooling
from mvindex.encoder.text import Ids, TokenizedText
from mvindex.records import Ints, Span
from mvindex.snippets import merge_sentences

Slots: TypeAlias = npt.NDArray[np.int32]

# The slot of a token that is only context.
CONTEXT = -1


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One input of the model.

    ids: (t,) with special tokens; slots: (t,) the view that each token's state counts for, or CONTEXT.
    """

    ids: Ids
    slots: Slots


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """The windows of one document, and the characters that each of its views stands for."""

    windows: list[Window]
    spans: list[Span]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The shape of a window. head, tail: special tokens around it; room: the tokens that fit between them."""

    head: Ids
    tail: Ids
    room: int
    prompt_tokens: int
    pooling: Pooling
    max_views: int

    def longest_prefix(self, num_text_tokens: int) -> int:
        """How much of prompt and title is read before the text: all if one window holds both, else a quarter of it."""
        return max(self.prompt_tokens, self.room // 4, self.room - num_text_tokens)


def arrange_snippets(text: TokenizedText, frame: Frame) -> Arrangement:
    """One view per snippet of CAMVR alg. 1: the mean of its own tokens, read with the text around it.

    Prompt and title are context; in a text of several windows they are repeated, up to a quarter of the window. A
    snippet that crosses windows is the mean over all its tokens; one without any token has no view.
    """
    if not len(text.ids):
        return arrange_single(text, frame)
    snippets = merge_sentences(text.sentences, frame.max_views)
    slots, spans = _token_slots(text, snippets)
    prefix = text.prefix[: frame.longest_prefix(len(text.ids))]
    context = _full(len(frame.head) + len(prefix)), _full(len(frame.tail))
    windows = [
        Window(
            np.concatenate([frame.head, prefix, text.ids[begin:end], frame.tail]),
            np.concatenate([context[0], slots[begin:end], context[1]]),
        )
        for begin, end in cut_windows(text.starts, frame.room - len(prefix))
    ]
    return Arrangement(windows, spans)


def arrange_single(text: TokenizedText, frame: Frame) -> Arrangement:
    """One view: the mean of all states, special tokens, prompt and title too, or of each window's first (CLS)."""
    prefix, ids, starts = text.prefix, text.ids, text.starts
    if len(prefix) > frame.longest_prefix(len(ids)):
        # Too long to be repeated, and part of the vector: read once, before the text.
        title = prefix[frame.prompt_tokens :]
        prefix, ids = prefix[: frame.prompt_tokens], np.concatenate([title, ids])
        starts = np.concatenate([[0], starts + len(title)])
    inputs = [
        np.concatenate([frame.head, prefix, ids[begin:end], frame.tail])
        for begin, end in cut_windows(starts, frame.room - len(prefix))
    ]
    return Arrangement([Window(ids, _whole_slots(len(ids), frame.pooling)) for ids in inputs], [text.whole])


def cut_windows(starts: Ints, room: int) -> Iterator[tuple[int, int]]:
    """Token ranges of at most `room` tokens that cover a text: as many whole sentences as fit, one after the other.

    starts: (m + 1,) where sentences start, and the end. A sentence longer than that is cut between two tokens. A text
    without tokens has one empty range.
    """
    begin, total = 0, int(starts[-1])
    while True:
        end = int(starts[np.searchsorted(starts, begin + room, side="right") - 1])
        if end <= begin:
            end = min(begin + room, total)
        yield begin, end
        if end >= total:
            return
        begin = end


FAMILIES: Mapping[Family, Callable[[TokenizedText, Frame], Arrangement]] = {
    Family.SNIPPETS: arrange_snippets,
    Family.SINGLE: arrange_single,
}


def _token_slots(text: TokenizedText, snippets: Sequence[Span]) -> tuple[Slots, list[Span]]:
    """The slot of each token, and the spans of the slots; snippets without tokens take none."""
    begins = [begin for begin, _ in snippets]
    snippet_of_sentence = np.searchsorted(begins, [begin for begin, _ in text.sentences], side="right") - 1
    snippet_of_token = np.repeat(snippet_of_sentence, np.diff(text.starts))
    is_used = np.bincount(snippet_of_token, minlength=len(snippets)) > 0
    slot_of_snippet = np.cumsum(is_used) - 1
    spans = [span for span, used in zip(snippets, is_used.tolist(), strict=True) if used]
    return slot_of_snippet[snippet_of_token].astype(np.int32), spans


def _whole_slots(num_tokens: int, pooling: Pooling) -> Slots:
    if pooling is Pooling.MEAN:
        return np.zeros(num_tokens, dtype=np.int32)
    slots = _full(num_tokens)
    slots[0] = 0
    return slots


def _full(num_tokens: int) -> Slots:
    return np.full(num_tokens, CONTEXT, dtype=np.int32)
