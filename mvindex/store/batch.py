"""One commit of documents and their views, and the mark of its write.

A mark is stored in the transaction of its write, so that no kill parts them: a write that is sent again, its response
lost, is not carried out again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash

from mvindex.records import Document, Floats, Ints
from mvindex.store.views import PackedViews

_SETTING = "served_writes"
# More than are on their way at once; those of a running server are in its memory as well.
_MAX_MARKS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One commit: documents with distinct ids, their views, and everything that is stored in the same transaction.

    Attributes:
        documents: Documents to add or replace.
        views: Their views, as they are stored.
        content_hashes: The content_hash() of each document.
        metadata_updates: Metadata (canonical JSON) to set on other documents, by document row.
        ordinals: (n,) int64, used for documents that are new; None numbers them on.
        settings: Settings of the index to set.
        mark: Names the write, and is stored with it; empty for none.

    """

    documents: Sequence[Document]
    views: PackedViews
    content_hashes: Sequence[bytes]
    metadata_updates: Mapping[int, str] = field(default_factory=dict)
    ordinals: Ints | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    mark: str = ""

    def select(self, numbers: Sequence[int]) -> Batch:
        """Return the documents at these positions as a batch of their own, without what is set beside them."""
        counts = np.diff(self.views.starts)[list(numbers)]
        bounds = [np.arange(self.views.starts[number], self.views.starts[number + 1]) for number in numbers]
        rows = np.concatenate(bounds) if bounds else np.empty(0, dtype=np.int64)
        return Batch(
            documents=[self.documents[number] for number in numbers],
            views=PackedViews(self.views.rows[rows], np.append(0, np.cumsum(counts)), self.views.spans[rows]),
            content_hashes=[self.content_hashes[number] for number in numbers],
            ordinals=None if self.ordinals is None else self.ordinals[list(numbers)],
        )


def content_hash(document: Document, views: Floats | None = None, spans: Ints | None = None) -> bytes:
    """Return the xxh3-128 of a document's title, text, view_texts, given views (k, d) and spans (k, 2)."""
    title, text = document.title.encode(), document.text.encode()
    parts = [len(title).to_bytes(8, "little"), title, len(text).to_bytes(8, "little"), text]
    if document.view_texts:
        parts += [repr((each.text, each.span)).encode() for each in document.own_view_texts]
    if views is not None:
        parts.append(np.ascontiguousarray(views, dtype="<f4").tobytes())
    if spans is not None and (spans >= 0).any():
        parts.append(np.ascontiguousarray(spans, dtype="<i8").tobytes())
    return xxhash.xxh3_128_digest(b"".join(parts))


def result_of(settings: Mapping[str, Any], mark: str) -> int | None:
    """Return how many documents the write of this mark changed; None unless it was carried out."""
    return dict(settings.get(_SETTING, ())).get(mark) if mark else None


def with_mark(settings: Mapping[str, Any], mark: str, result: int) -> dict[str, Any]:
    """Return the change of settings that records a write and how many documents it changed; none without a mark."""
    return {_SETTING: [*settings.get(_SETTING, ()), [mark, result]][-_MAX_MARKS:]} if mark else {}
