"""Group windows into batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mvindex.encoder.families.windows import CONTEXT, Window
from mvindex.records import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Windows padded to one length. ids, mask: (b, t) int64; rows: (b, t) the row each state counts for, or CONTEXT.

    places: (w,) which windows the first w lines are; the others are padding. weights: (b, t) float32, of the states in
    their row's mean, 0 where none; positions: (b, t) int64 from 0 on, or None where all windows are numbered through.
    reads: (b, t, t) bool, which tokens (last axis) each token reads, or None where all read all but padding.
    """

    ids: Ints
    mask: Ints
    rows: Ints
    places: Ints
    weights: Floats
    positions: Ints | None
    reads: Bools | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """How large batches may be, in tokens with padding, and the steps in which they grow.

    Steps keep the number of different shapes small: the CPU's matrix library keeps compiled code and buffers for each
    shape it has met, hundreds of MiB when every batch has its own. max_length: where the model's positions end.
    min_spared: the share of a batch's tokens that another batch has to spare, also for the sake of few shapes;
    least_spared: the tokens that it has to spare, about as many as a batch costs beside its own.
    """

    max_tokens: int
    length_step: int = 1
    count_step: int = 1
    max_length: int | None = None
    min_spared: float = 1 / 8
    least_spared: int = 64

    def length(self, longest: int) -> int:
        """Return the length that windows of at most this length are padded to."""
        rounded = -(-longest // self.length_step) * self.length_step
        return max(longest, min(rounded, self.max_length or rounded))

    def count(self, num_windows: int) -> int:
        """Return how many lines a batch of that many windows has, with padding. A single query stays single."""
        if num_windows < self.count_step:
            return num_windows
        return -(-num_windows // self.count_step) * self.count_step

    def cut(self, lengths: Ints) -> int:
        """Return how many of these windows, longest first, make the next batch: fewer where that saves padding."""
        padded = self.length(int(lengths[0]))
        for count in range(self.count_step, len(lengths), self.count_step):
            spared = (padded - self.length(int(lengths[count]))) * (len(lengths) - count)
            if spared >= max(self.least_spared, int(self.min_spared * padded * len(lengths))):
                return count
        return len(lengths)


def batches(windows: Sequence[Window], first_rows: Ints, shape: BatchShape, pad_id: int) -> Iterator[Batch]:
    """Yield the windows in batches of at most shape.max_tokens tokens with padding (or one window), longest first.

    first_rows: (len(windows),) the row of a window's slot 0. The same windows always give the same batches; the
    longest come first so that too little memory shows at once.
    """
    lengths = np.fromiter((len(window.ids) for window in windows), dtype=np.int64, count=len(windows))
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        length = shape.length(int(lengths[order[begin]]))
        count = max(1, shape.max_tokens // length // shape.count_step * shape.count_step)
        count = shape.cut(lengths[order[begin : begin + count]])
        places = order[begin : begin + count]
        yield _pad([windows[place] for place in places], first_rows, places, (shape.count(len(places)), length, pad_id))
        begin += count


def _pad(windows: Sequence[Window], first_rows: Ints, places: Ints, form: tuple[int, int, int]) -> Batch:
    """Return the windows as one batch; form: its lines, its length and the id that pads it."""
    num_lines, length, pad_id = form
    ids = np.full((num_lines, length), pad_id, dtype=np.int64)
    mask = np.zeros_like(ids)
    mask[:, 0] = 1  # a line of padding attends to something: over nothing the softmax has no value
    rows = np.full_like(ids, CONTEXT)
    weights = np.zeros(ids.shape, dtype=np.float32)
    for line, (window, first_row) in enumerate(zip(windows, first_rows[places].tolist(), strict=True)):
        size = len(window.ids)
        ids[line, :size] = window.ids
        mask[line, :size] = 1
        rows[line, :size] = np.where(window.slots == CONTEXT, CONTEXT, window.slots + first_row)
        weights[line, :size] = np.where(window.slots == CONTEXT, 0, 1 if window.weights is None else window.weights)
    return Batch(ids, mask, rows, places, weights, _positions(windows, ids.shape), _reads(windows, mask))


def _positions(windows: Sequence[Window], shape: tuple[int, ...]) -> Ints | None:
    if all(window.positions is None for window in windows):
        return None
    positions = np.tile(np.arange(shape[1], dtype=np.int64), (shape[0], 1))
    for line, window in enumerate(windows):
        if window.positions is not None:
            positions[line, : len(window.positions)] = window.positions
    return positions


def _reads(windows: Sequence[Window], mask: Ints) -> Bools | None:
    """Return which tokens each token reads: viewers their own part of the text, others all but viewers (see Window)."""
    if all(window.scopes is None for window in windows):
        return None
    reads = np.repeat(mask.astype(bool)[:, None, :], mask.shape[1], axis=1)
    for line, window in enumerate(windows):
        if window.scopes is None or window.is_viewer is None:
            continue
        size, viewer = len(window.ids), window.is_viewer
        own = (window.scopes[:, None] == window.scopes[None, :]) & (window.scopes != CONTEXT)[:, None]
        np.fill_diagonal(own, True)
        reads[line, :size, :size] = np.where(viewer[:, None], own, ~viewer[None, :])
    return reads
