"""Windows: the inputs of the model, each token with the row that its state counts for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mvindex.encoder.checkpoint.settings import Pooling
from mvindex.encoder.text import Ids, TokenizedText
from mvindex.records import Bools, Floats, Ints, Span

Slots: TypeAlias = npt.NDArray[np.int32]

# The slot of a token that is only context.
CONTEXT = -1


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One input of the model.

    ids: (t,) with special tokens; slots: (t,) the row that each token's state counts for, or CONTEXT; weights: (t,)
    float32 of the states in their row's mean (None: all 1); positions: (t,) int32 from 0 on (None: 0, 1, 2, ...).
    scopes: (t,) the part of the text that each token belongs to, CONTEXT for none; a viewer (is_viewer, (t,) bool)
    reads its own part and itself only, and is read by no other token. None: every token reads every token.
    """

    ids: Ids
    slots: Slots
    weights: Floats | None = None
    positions: Ids | None = None
    scopes: Slots | None = None
    is_viewer: Bools | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """The windows of one document, and the characters that each of its views stands for.

    num_rows: how many rows the windows' states are averaged into. They are the views themselves, or, in families that
    work on the states of single tokens, the tokens that the views are made of.
    """

    windows: list[Window]
    spans: list[Span]
    num_rows: int


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The shape of a window. head, tail: special tokens around it; room: the tokens that fit between them.

    viewers: the ids of the viewer tokens, in families that have them; residual, own_snippet: see viewers.py.
    """

    head: Ids
    tail: Ids
    room: int
    prompt_tokens: int
    pooling: Pooling
    max_views: int
    viewers: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    residual: float = 0.0
    own_snippet: bool = False

    def longest_prefix(self, num_text_tokens: int) -> int:
        """Return how much of prompt and title to read before the text: all if one window holds both, else a quarter."""
        return max(self.prompt_tokens, self.room // 4, self.room - num_text_tokens)

    def with_specials(self, *parts: Ids) -> Ids:
        """Return the concatenated parts as one input, between head and tail."""
        return np.concatenate([self.head, *parts, self.tail])


def cut_windows(starts: Ints, room: int) -> Iterator[tuple[int, int]]:
    """Yield token ranges of at most `room` tokens that cover a text, each of as many whole sentences as fit.

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


def whole_windows(text: TokenizedText, frame: Frame) -> list[Ids]:
    """Return inputs of all of prompt, title and text; a title too long to be repeated is read once, first."""
    prefix, ids, starts = text.prefix, text.ids, text.starts
    if len(prefix) > frame.longest_prefix(len(ids)):
        title = prefix[frame.prompt_tokens :]
        prefix, ids = prefix[: frame.prompt_tokens], np.concatenate([title, ids])
        starts = np.concatenate([[0], starts + len(title)])
    room = frame.room - len(prefix)
    return [frame.with_specials(prefix, ids[begin:end]) for begin, end in cut_windows(starts, room)]


def make_pooled_window(ids: Ids, slot: int, pooling: Pooling) -> Window:
    """Return the input as a window for the slot: all its states, or only its first or last."""
    if pooling in (Pooling.MEAN, Pooling.WEIGHTED):
        weights = np.arange(1, len(ids) + 1, dtype=np.float32) if pooling is Pooling.WEIGHTED else None
        return Window(ids, np.full(len(ids), slot, dtype=np.int32), weights)
    slots = context(len(ids))
    slots[0 if pooling is Pooling.CLS else -1] = slot
    return Window(ids, slots)


def context(num_tokens: int) -> Slots:
    """Return the slots of tokens that are only context."""
    return np.full(num_tokens, CONTEXT, dtype=np.int32)
