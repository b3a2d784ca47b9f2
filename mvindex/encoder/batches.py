"""Windows put together into batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mvindex.encoder.families import CONTEXT, Window
from mvindex.records import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Windows padded to one length. ids, mask: (b, t) int64; rows: (b, t) the row each state counts for, or CONTEXT.

    places: (b,) which windows they are.
    """

    ids: Ints
    mask: Ints
    rows: Ints
    places: Ints


def batches(windows: Sequence[Window], first_rows: Ints, max_tokens: int, pad_id: int) -> Iterator[Batch]:
    """The windows in batches of at most max_tokens tokens with padding (or one window), longest first.

    first_rows: (len(windows),) the row of a window's slot 0. The same windows always give the same batches; the
    longest come first so that too little memory shows at once.
    """
    lengths = np.fromiter((len(window.ids) for window in windows), dtype=np.int64, count=len(windows))
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        count = max(1, max_tokens // int(lengths[order[begin]]))
        yield _pad(windows, first_rows, order[begin : begin + count], pad_id)
        begin += count


def _pad(windows: Sequence[Window], first_rows: Ints, places: Ints, pad_id: int) -> Batch:
    longest = len(windows[places[0]].ids)
    ids = np.full((len(places), longest), pad_id, dtype=np.int64)
    mask = np.zeros_like(ids)
    rows = np.full_like(ids, CONTEXT)
    for line, place in enumerate(places.tolist()):
        window = windows[place]
        length = len(window.ids)
        ids[line, :length] = window.ids
        mask[line, :length] = 1
        rows[line, :length] = np.where(window.slots == CONTEXT, CONTEXT, window.slots + first_rows[place])
    return Batch(ids, mask, rows, places)
