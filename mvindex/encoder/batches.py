"""Group windows into batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mvindex.encoder.arranged import Arranged, ranges
from mvindex.encoder.families.windows import CONTEXT
from mvindex.records import Bools, CountCallback, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class TokenBatch:
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


def batches(arranged: Arranged, shape: BatchShape, pad_id: int) -> Iterator[TokenBatch]:
    """Yield the windows in batches of at most shape.max_tokens tokens with padding (or one window), longest first.

    The same windows always give the same batches; the longest come first so that too little memory shows at once.
    """
    order = np.argsort(-arranged.lengths, kind="stable")
    starts, first_rows = np.cumsum(arranged.lengths) - arranged.lengths, arranged.first_rows
    begin = 0
    while begin < len(order):
        length = shape.length(int(arranged.lengths[order[begin]]))
        count = max(1, shape.max_tokens // length // shape.count_step * shape.count_step)
        count = shape.cut(arranged.lengths[order[begin : begin + count]])
        places = order[begin : begin + count]
        form = (shape.count(len(places)), length)
        yield _pad(arranged, _Tokens.of(places, starts[places], arranged.lengths[places]), first_rows, form, pad_id)
        begin += count


class Progress:
    """Reports documents: as many of those that have windows as the share of their tokens that is read.

    A document's windows are of many lengths, so that nearly all documents are finished only by the last batches.
    """

    def __init__(self, arranged: Arranged, on_progress: CountCallback) -> None:
        self._lengths, self._on_progress = arranged.lengths, on_progress
        self._num_documents = int(np.count_nonzero(arranged.num_windows))
        self._num_tokens = int(arranged.lengths.sum())
        self._num_read = self._num_reported = 0

    def report(self, batch: TokenBatch) -> None:
        """Report the documents that this batch stands for."""
        self._num_read += int(self._lengths[batch.places].sum())
        num_documents = self._num_documents * self._num_read // self._num_tokens
        if num_documents > self._num_reported:
            self._on_progress(num_documents - self._num_reported)
            self._num_reported = num_documents

    def restart(self) -> None:
        """Begin with the first batch again; what was reported is not reported twice."""
        self._num_read = 0


class _Tokens(NamedTuple):
    """Where each token of a batch is: its line and column there, its place among all tokens, and its window."""

    windows: Ints
    lines: Ints
    columns: Ints
    places: Ints

    @classmethod
    def of(cls, windows: Ints, starts: Ints, lengths: Ints) -> _Tokens:
        columns = ranges(np.zeros_like(lengths), lengths)
        lines = np.repeat(np.arange(len(windows)), lengths)
        return cls(windows, lines, columns, starts[lines] + columns)


def _pad(arranged: Arranged, tokens: _Tokens, first_rows: Ints, form: tuple[int, int], pad_id: int) -> TokenBatch:
    """Return the windows as one batch; form: its lines and their length."""
    at = (tokens.lines, tokens.columns)
    ids = np.full(form, pad_id, dtype=np.int64)
    ids[at] = arranged.ids[tokens.places]
    mask = np.zeros_like(ids)
    mask[:, 0] = 1  # a line of padding attends to something: over nothing the softmax has no value
    mask[at] = 1
    slots = arranged.slots[tokens.places]
    is_context = slots == CONTEXT
    rows = np.full_like(ids, CONTEXT)
    rows[at] = np.where(is_context, CONTEXT, slots + first_rows[tokens.windows][tokens.lines])
    weights = np.zeros(form, dtype=np.float32)
    weights[at] = np.where(is_context, 0, 1 if arranged.weights is None else arranged.weights[tokens.places])
    positions = None
    if arranged.positions is not None:
        positions = np.tile(np.arange(form[1], dtype=np.int64), (form[0], 1))
        positions[at] = arranged.positions[tokens.places]
    return TokenBatch(ids, mask, rows, tokens.windows, weights, positions, _reads(arranged, tokens, mask))


def _reads(arranged: Arranged, tokens: _Tokens, mask: Ints) -> Bools | None:
    """Return which tokens each token reads: viewers their own part of the text, others all but viewers (see Window)."""
    if arranged.scopes is None or arranged.is_viewer is None:
        return None
    at = (tokens.lines, tokens.columns)
    scopes, is_viewer = np.full(mask.shape, CONTEXT, dtype=np.int32), np.zeros(mask.shape, dtype=np.bool_)
    scopes[at], is_viewer[at] = arranged.scopes[tokens.places], arranged.is_viewer[tokens.places]
    own = (scopes[:, :, None] == scopes[:, None, :]) & (scopes != CONTEXT)[:, :, None]
    own |= np.eye(mask.shape[1], dtype=np.bool_)
    others: Bools = mask.astype(np.bool_)[:, None, :] & ~is_viewer[:, None, :]
    return np.where(is_viewer[:, :, None], own, others)
