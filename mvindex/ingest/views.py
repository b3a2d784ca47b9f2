"""The views of a batch: made from texts, given, reused or pruned, each with its span.

What is replaced is read with its views, and its text is arranged again by the encoder that made them. So nothing is
stored for this, and the work is that of the documents of a chunk, whatever the size of the index.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mvindex.arrays import as_numbers
from mvindex.encoder import Encoder
from mvindex.encoder.function import PartialEncoder, join_views
from mvindex.errors import ConfigError, DamagedIndex, EncoderError
from mvindex.kernels.score import decode
from mvindex.records import Bools, CountCallback, Document, Doubles, Floats, Ints, Views, no_progress, shown
from mvindex.store.protocol import Store
from mvindex.store.rows import Batch, PackedViews, content_hash

logger = logging.getLogger(__name__)

_NONE = (-1, -1)


class SpanReader:
    """Gives the spans of one document after the other."""

    def __init__(self, spans: Any) -> None:
        """Take an array (r, 2) of all views in order, or (k_i, 2) pairs or None for each document.

        Raises EncoderError for anything else.
        """
        self._flat: Ints | None = None
        self._each: Iterator[Any] = iter(())
        self._num_taken = 0
        if not hasattr(spans, "__array__"):
            if isinstance(spans, Mapping | str | bytes) or not isinstance(spans, Iterable):
                raise EncoderError(f"spans: expected an array or pairs for each document, got {shown(spans)}")
            self._each = iter(spans)
            return
        array = np.asarray(spans)
        if array.dtype.kind not in "iu" or array.ndim not in (2, 3) or array.shape[-1] != 2:
            raise EncoderError(
                f"spans: expected integers of shape (r, 2) or (n, k, 2), got {array.dtype} of {array.shape}"
            )
        if array.ndim == 3:
            self._each = iter(array)
        else:
            self._flat = array.astype(np.int64)

    def check_total(self, rows: object) -> None:
        """Raise EncoderError where the array (r, 2) has another number of spans than these views, if they are known."""
        if self._flat is None or not isinstance(rows, Sequence | np.ndarray):
            return
        try:
            total = sum(1 if np.ndim(each) == 1 else len(each) for each in rows)
        except (TypeError, ValueError):
            return  # these are no views, which is said where they are read
        if total != len(self._flat):
            raise EncoderError(f"spans: expected {total}, one for each view, got {len(self._flat)}")

    def take(self, document: Document, count: int) -> Ints | None:
        """Return the spans of the next document, (count, 2); None where it has none.

        Raises EncoderError for another number, and a span that is empty or beyond the text.
        """
        if self._flat is None:
            spans = self._next(document)
        else:
            spans = self._flat[self._num_taken : self._num_taken + count]
            self._num_taken += count
        if spans is None:
            return None
        if spans.shape != (count, 2):
            raise EncoderError(f"document {document.id!r}: expected {count} spans, one for each view, got {len(spans)}")
        begins, ends = spans[:, 0], spans[:, 1]
        is_span = (begins >= 0) & (begins < ends) & (ends <= len(document.text))
        is_bad = ~is_span & ~(spans == _NONE).all(axis=1)
        if is_bad.any():
            slot = int(np.argmax(is_bad))
            raise EncoderError(
                f"document {document.id!r}: spans: view {slot}: expected 0 <= begin < end <= {len(document.text)}, the "
                f"characters of its text, got {begins[slot]} and {ends[slot]}; None is no span"
            )
        return spans

    def _next(self, document: Document) -> Ints | None:
        try:
            given = next(self._each)
        except StopIteration:
            raise EncoderError(
                f"there are fewer spans than documents: document {document.id!r} has none; expected one list for each"
            ) from None
        if given is None:
            return None
        if not hasattr(given, "__array__") and isinstance(given, Iterable):
            given = [_NONE if pair is None else pair for pair in given]
        try:
            array = as_numbers(given)
        except ValueError as err:
            raise EncoderError(f"document {document.id!r}: spans: expected pairs of whole numbers: {err}") from err
        if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
            raise EncoderError(
                f"document {document.id!r}: spans: expected pairs of whole numbers [begin, end), got {array.dtype} of "
                f"shape {array.shape}"
            )
        return array.astype(np.int64)

    def check_end(self) -> None:
        """Raise EncoderError where spans are left after the last document."""
        left = next(self._each, self) is not self if self._flat is None else self._num_taken < len(self._flat)
        if left:
            raise EncoderError("there are more spans than views; expected one for each")


# Differences of views in memory at once, in float64: 8 MiB, whatever the number of views of a document.
_BLOCK_ELEMENTS = 1 << 20


def kept_views(rows: npt.NDArray[Any], starts: Ints, eps: float) -> Bools:
    """Return which views are kept, (r,) bool: in slot order, all but those within eps of one kept before.

    rows: (r, d) finite float32, or fp16 or fp32 as stored; starts: (n + 1,) int64, document i owns
    rows[starts[i]:starts[i + 1]]. The distance is Euclidean, in float64 (relative error below 1e-9); for unit
    vectors 1 - cosine = distance^2 / 2. eps 0 removes exact duplicates only. ConfigError when eps is no finite
    number from 0 on.

    The first view of a document always stays, and each view v that is removed has a kept view u of its document with
    |v - u| <= eps. So no document loses more than eps |q| of its score by best view (scoring "max"): by Cauchy-Schwarz
    q.u = q.v - q.(v - u) >= q.v - |q| |v - u| >= q.v - eps |q|, also where v was the best view; and the best of fewer
    views is never above the best of all.
    """
    eps = check_eps(eps)
    is_kept = np.ones(len(rows), dtype=bool)
    for block in _blocks(starts, rows.shape[1]):
        is_kept[block] = _kept_slots(decode(rows[block]), eps)
    return is_kept


def remove_near_duplicates(views: PackedViews, eps: float) -> PackedViews:
    """Remove the views that kept_views() removes."""
    is_kept = kept_views(views.rows, views.starts, eps)
    seen = np.append(0, np.cumsum(is_kept))
    return PackedViews(views.rows[is_kept], seen[views.starts], views.spans[is_kept])


def check_eps(value: object) -> float:
    """Return the value as a float; raise ConfigError when it is no distance, a finite number from 0 on."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            eps = float(value)
        except OverflowError:
            eps = math.inf
        if 0 <= eps < math.inf:
            return eps
    raise ConfigError(f"prune_views is {value!r:.40}; expected a distance: a finite number from 0 on")


def _blocks(starts: Ints, dim: int) -> Iterator[Ints]:
    """Yield the rows of documents with equally many views, more than one, (n, k), in blocks of bounded memory."""
    counts = np.diff(starts)
    for num_views in np.unique(counts[counts > 1]).tolist():
        begins = starts[:-1][counts == num_views]
        step = max(1, _BLOCK_ELEMENTS // (num_views * dim))
        for begin in range(0, len(begins), step):
            yield begins[begin : begin + step, None] + np.arange(num_views)


def _kept_slots(views: Floats, eps: float) -> Bools:
    """Return which slots of documents with equally many views are kept, (n, k); views: (n, k, d)."""
    num_documents, num_views, dim = views.shape
    is_kept = np.ones((num_documents, num_views), dtype=bool)
    step = max(1, _BLOCK_ELEMENTS // (num_documents * dim))
    for slot in range(num_views - 1):
        if not is_kept[:, slot].any():
            continue
        for begin in range(slot + 1, num_views, step):
            later = slice(begin, begin + step)
            is_near = _distances(views[:, later], views[:, slot, None]) <= eps
            is_kept[:, later] &= ~(is_near & is_kept[:, slot, None])
    return is_kept


def _distances(some: Floats, other: Floats) -> Doubles:
    """Return the distances (n, m) of views (n, m, d) to one view of the same document, (n, 1, d)."""
    # By differences: from inner products, the distance of close views would be mostly rounding.
    gaps = np.subtract(some, other, dtype=np.float64)
    distances: Doubles = np.sqrt(np.einsum("nmd,nmd->nm", gaps, gaps))
    return distances


# Returns the views of documents; the ids are of those that replace stored ones.
Encode: TypeAlias = Callable[[Sequence[Document], Collection[str], CountCallback], Views]


def reusing(store: Store, encoder: Encoder) -> Encode:
    """Return a function that encodes documents, and takes the vectors that the replaced ones have already.

    Reused are vectors of whole documents of the same title and text, under whichever of the replaced ids, and of single
    views where the encoder knows what each depends on. They are the vectors that encoding gives, up to the rounding of
    another batch. Documents of given views, or with view texts, are encoded whole.
    """

    def encode(documents: Sequence[Document], replaced: Collection[str], on_progress: CountCallback) -> Views:
        try:
            stored = store.stored(list(replaced), encoder.fingerprint) if replaced else []
            known = [each for batch in stored for each in _encoded_texts(batch)]
        except DamagedIndex as err:  # what replaces a damaged document repairs it
            logger.info("%s; it is encoded whole", err)
            known = []
        if not known:
            return encoder.encode_documents(documents, on_progress)
        return _encode_unknown(encoder, documents, known, on_progress)

    return encode


def _encoded_texts(batch: Batch) -> list[tuple[Document, bytes, Views]]:
    """Return the documents whose views were made of title and text, with their hashes and views."""
    found = []
    for number, (document, digest) in enumerate(zip(batch.documents, batch.content_hashes, strict=True)):
        if content_hash(document) == digest:
            bounds = slice(batch.views.starts[number], batch.views.starts[number + 1])
            rows, spans = decode(batch.views.rows[bounds]), batch.views.spans[bounds]
            views = Views(rows, np.array([0, len(rows)]), spans, np.ones(len(rows), dtype=bool))
            found.append((document, digest, views))
    return found


def _encode_unknown(
    encoder: Encoder,
    documents: Sequence[Document],
    known: Sequence[tuple[Document, bytes, Views]],
    on_progress: CountCallback,
) -> Views:
    """Return the views of the documents: those of a known text as they are stored, the others encoded."""
    whole = {digest: views for _, digest, views in known}
    found = [whole.get(content_hash(Document(each.id, each.text, each.title))) for each in documents]
    left = [document for document, views in zip(documents, found, strict=True) if views is None]
    on_progress(len(documents) - len(left))
    parts = [views for views in found if views is not None]
    if left:
        vectors = _known_views(encoder, known) if isinstance(encoder, PartialEncoder) else {}
        if vectors and isinstance(encoder, PartialEncoder):
            parts.append(encoder.encode_unknown(left, vectors, on_progress))
        else:
            parts.append(encoder.encode_documents(left, on_progress))
    # The stored ones come first, then the encoded ones, each in their order.
    is_left = np.array([views is None for views in found])
    return join_views(parts).take(np.argsort(np.argsort(is_left, kind="stable")).tolist())


def _known_views(encoder: PartialEncoder, known: Sequence[tuple[Document, bytes, Views]]) -> dict[bytes, Floats]:
    """Return the stored vectors by what they were made of; none of documents some of whose views were pruned."""
    keys = encoder.view_keys([document for document, _, _ in known])
    pairs = zip(keys, known, strict=True)
    return {
        key: vector
        for own, (_, _, views) in pairs
        if len(own) == len(views.rows)
        for key, vector in zip(own, views.rows, strict=True)
    }


def encode_with_view_texts(
    encode: Encode, documents: Sequence[Document], replaced: Collection[str], on_progress: CountCallback
) -> Views:
    """Return the views of each document: those of its text, then those of its view_texts, which cite their spans.

    replaced: the ids of documents that replace stored ones.
    """
    views = encode(documents, replaced, on_progress)
    given = [
        (number, text)
        for number, document in enumerate(documents)
        if len(document.view_texts)
        for text in document.own_view_texts
    ]
    if not given:
        return views
    extra = encode([Document(documents[number].id, text.text) for number, text in given], (), no_progress)
    counts = np.diff(extra.starts)
    numbers = np.repeat([number for number, _ in given], counts)
    spans = np.repeat(np.array([text.span or (-1, -1) for _, text in given], dtype=np.int64), counts, axis=0)
    owners = np.concatenate([np.repeat(np.arange(len(documents)), np.diff(views.starts)), numbers])
    order = np.argsort(owners, kind="stable")
    joined = join_views([views, replace(extra, spans=spans)])
    return Views(
        joined.rows[order],
        np.append(0, np.cumsum(np.bincount(owners, minlength=len(documents)))).astype(np.int64),
        joined.spans[order],
        None if joined.is_reused is None else joined.is_reused[order],
    )
