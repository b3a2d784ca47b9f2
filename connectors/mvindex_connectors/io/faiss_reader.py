"""The vectors of a Faiss index: read by a process with limits, since Faiss believes what an index file says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import faiss
import numpy as np

from mvindex.io.confined import FRAME_VECTORS, Refused, serve

_UNIT_ERROR = 1e-3
# What keeps the vectors as they were added.
_EXACT = ("IndexFlat", "IndexHNSWFlat", "IndexNSGFlat", "IndexIVFFlat")


def read_vectors(file: BinaryIO, options: dict[str, Any]) -> Iterator[tuple[Sequence[str | int], Any]]:
    """The numbers by which Faiss knows the vectors, and the vectors."""
    whole = _opened(file)
    index, labels = _without_numbers(whole)
    if labels is None and not options["has_ids"]:
        raise Refused("holds vectors and no ids; give --ids FILE, the id of each vector, one a line, or .npy or .json")
    name = type(index).__name__
    if not isinstance(index, tuple(getattr(faiss, one) for one in _EXACT)) and not options["accept_reconstructions"]:
        raise Refused(
            f"is a {name}, which keeps codes: what can be imported are reconstructions, close to the vectors and not "
            "the same; --accept-reconstructions takes them"
        )
    if isinstance(index, faiss.IndexIVF):
        _number_lists(index)
    for begin in range(0, index.ntotal, FRAME_VECTORS):
        count = min(FRAME_VECTORS, index.ntotal - begin)
        vectors = index.reconstruct_n(begin, count)
        if not options["accept_inner_product"]:
            _check_metric(index, begin, vectors)
        numbers = range(begin, begin + count) if labels is None else labels[begin : begin + count].tolist()
        yield list(numbers), vectors


def _opened(file: BinaryIO) -> Any:
    """The index, as Faiss reads it."""
    reader = faiss.PyCallbackIOReader(file.read)  # type: ignore[attr-defined]  # not in Faiss' stubs
    try:
        whole = faiss.read_index(reader)
    except RuntimeError as err:
        raise Refused(f"Faiss cannot read it: {str(err).rpartition('Error: ')[2]:.200}") from err
    if file.read(1):
        raise Refused("has bytes after the end of its index")
    return whole


def _without_numbers(whole: Any) -> tuple[Any, Any]:
    """The index that holds the vectors, which goes when the whole does, and what numbers they were given.

    These are None where they are 0, 1, 2, ...
    """
    if not isinstance(whole, faiss.IndexIDMap):
        return whole, None
    labels, inner = faiss.vector_to_array(whole.id_map), faiss.downcast_index(whole.index)
    if len(labels) != inner.ntotal:
        raise Refused(f"names {len(labels)} vectors and holds {inner.ntotal}")
    return inner, labels


def _number_lists(index: Any) -> None:
    """Nothing; the vectors of an index of lists can be asked for by their numbers."""
    try:
        index.make_direct_map()
    except RuntimeError as err:
        raise Refused(
            "its lists have numbers that are not 0, 1, 2, ..., by which Faiss cannot give the vectors back; add them "
            "to an IndexIDMap of such an index instead"
        ) from err


def _check_metric(index: Any, begin: int, vectors: Any) -> None:
    """Nothing; Refused when inner products would not order documents as the index does."""
    if index.metric_type == faiss.METRIC_INNER_PRODUCT:
        return
    is_l2 = index.metric_type == faiss.METRIC_L2
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    is_unit = np.abs(norms - 1) <= _UNIT_ERROR
    if is_l2 and is_unit.all():
        return
    bad = int(np.argmin(is_unit))
    found = f"vector {begin + bad} has length {norms[bad]:.4g}" if is_l2 else "its distance is none of the two"
    raise Refused(
        f"searches by {'L2 distance' if is_l2 else f'metric {index.metric_type}'}, and {found}: scores here are inner "
        "products, which order documents as L2 does only for vectors of length 1; --accept-inner-product takes the "
        "vectors as they are, and answers will be others than Faiss gave"
    )


def main() -> None:
    """Nothing; standard input, a Faiss index, is read within limits."""
    serve(read_vectors)
