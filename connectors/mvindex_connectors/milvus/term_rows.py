"""The terms of a document as rows of Milvus: a sparse vector that candidates are found by, and the counts themselves.

A sparse vector has a dimension for each term, of 32 bits of its hash: terms may share one. Its value is the saturation
of BM25 by a mean length of then. So an inner product only bounds a score; the score is computed from the counts.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import DamagedIndex
from mvindex.records import Doubles, Floats, Hashes, Ints
from mvindex.search.fusion import Fusion
from mvindex.search.terms import Bm25
from mvindex.store.lexical.tokenizer import Lexical, tokenize_in_parts
from mvindex.store.rows import row_checksum
from mvindex_connectors.milvus.layout import SLOT_BITS, VERSION_BITS
from mvindex_connectors.milvus.writes import SPARSE, Column

# Of a uint32 dimension; the last one is Milvus' own, the one before it is of rows that no search is to find.
_NUM_DIMENSIONS = (1 << 32) - 2
_HIDDEN = np.array([(_NUM_DIMENSIONS, 1.0)], dtype=SPARSE).tobytes()
# Terms of one row: 12 bytes each, in base64, fit the longest text of Milvus.
TERMS_PER_ROW = 4_000
_TERM_BYTES = 12
# The weights that values are stored by.
_STORED = Bm25(Fusion().k1, Fusion().b, 1, 1)
TERM_FIELDS = ("pk", "num_terms", "terms", "checksum")


class BatchTerms(NamedTuple):
    """The terms of n texts: hashes[starts[i]:starts[i + 1]], rising, are those of text i, with how often each occurs.

    starts: (n + 1,); hashes, counts: (p,); lengths: (n,), the number of terms of each text, repeated ones included.
    """

    starts: Ints
    hashes: Hashes
    counts: Ints
    lengths: Ints

    def part(self, number: int) -> BatchTerms:
        """Return the terms of one text."""
        begin, end = self.starts[number : number + 2].tolist()
        return BatchTerms(
            np.array([0, end - begin]),
            self.hashes[begin:end],
            self.counts[begin:end],
            self.lengths[number : number + 1],
        )

    @property
    def owners(self) -> Ints:
        """The text of each term, (p,)."""
        return np.repeat(np.arange(len(self.lengths)), np.diff(self.starts))


def split_texts(texts: Sequence[str], lexical: Lexical) -> BatchTerms:
    """Return the terms of the texts."""
    parts = [NO_TERMS]
    for tokens in tokenize_in_parts(texts, lexical):
        hashes = np.repeat(tokens.hashes, np.diff(tokens.starts))
        order = np.argsort(tokens.texts, kind="stable")
        sizes = np.bincount(tokens.texts, minlength=len(tokens.lengths))
        parts.append(BatchTerms(sizes, hashes[order], tokens.counts[order], tokens.lengths))
    sizes, hashes, counts, lengths = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return BatchTerms(np.append(0, np.cumsum(sizes)), hashes, counts, lengths)


def term_columns(terms: BatchTerms, keys: Ints, mean_length: float) -> dict[str, Column]:
    """Return the rows of documents' terms, by column; a document without terms has none.

    Args:
        terms: The terms of n documents.
        keys: (n,) the key of the first row of each document.
        mean_length: The mean number of terms that the values of sparse vectors are for.

    """
    vectors = _sparse_vectors(terms, mean_length)
    columns: dict[str, list[Any]] = {name: [] for name in ("pk", "doc", "num_terms", "terms", "checksum", "vec")}
    for number, (begin, end) in enumerate(pairwise(terms.starts.tolist())):
        for part, at in enumerate(range(begin, end, TERMS_PER_ROW)):
            own = slice(at, min(at + TERMS_PER_ROW, end))
            packed = pack_counts(terms.hashes[own], terms.counts[own])
            add_row(columns, int(keys[number]) + part, end - begin, packed, _HIDDEN if part else vectors[number])
    return dict(columns)


def add_row(columns: dict[str, list[Any]], key: int, num_terms: int, packed: str, vector: bytes = _HIDDEN) -> None:
    """Append a row to the columns; without a vector no search finds it."""
    values = (key, key >> (SLOT_BITS + VERSION_BITS), num_terms, packed, row_checksum(key, num_terms, packed), vector)
    for column, value in zip(columns.values(), values, strict=True):
        column.append(value)


def pack_counts(hashes: Hashes, counts: Ints) -> str:
    """Return hashes and counts, below 2^31, as a text."""
    return base64.b64encode(hashes.astype("<u8").tobytes() + counts.astype("<i4").tobytes()).decode()


def unpack_counts(row: dict[str, Any], where: str) -> tuple[Hashes, Ints]:
    """Return the hashes and counts of a row; DamagedIndex when it does not match its checksum."""
    text = row["terms"]
    try:
        packed = base64.b64decode(text, validate=True)
    except binascii.Error:
        packed = b""
    if row_checksum(int(row["pk"]), int(row["num_terms"]), text) != row["checksum"] or len(packed) % _TERM_BYTES:
        raise DamagedIndex(
            f"{where}: row {row['pk']} of its terms does not match its checksum; `mvindex build --lexical` makes the "
            "lexical side again"
        )
    num_terms = len(packed) // _TERM_BYTES
    return np.frombuffer(packed, "<u8", num_terms), np.frombuffer(packed, "<i4", offset=8 * num_terms).astype(np.int64)


def dimensions_of(hashes: npt.ArrayLike) -> Ints:
    """Return the dimension of each term, of the hash's lower bits."""
    low = np.asarray(hashes, dtype=np.uint64) & np.uint64(0xFFFFFFFF)
    return (low % np.uint64(_NUM_DIMENSIONS)).astype(np.int64)


def packed_vector(dimensions: Ints, values: Floats) -> bytes:
    """Return a sparse vector on the wire. dimensions: rising; values: (d,) float32."""
    pairs = np.empty(len(dimensions), dtype=SPARSE)
    pairs["dim"], pairs["value"] = dimensions, values
    return pairs.tobytes()


def bounding_vector(dimensions: Ints, weights: Doubles) -> bytes:
    """Return the query of terms of these dimensions and weights, rounded up; of one dimension they are added."""
    unique, places = np.unique(dimensions, return_inverse=True)
    return packed_vector(unique, rounded_up(np.bincount(places, weights).astype(np.float64)))


def rounded_up(values: Doubles) -> Floats:
    """Return float32 values that are not below these."""
    upper: Floats = np.nextafter(values.astype(np.float32), np.float32(np.inf))
    return upper


def bound_ratio(weights: Bm25, means: tuple[float, float], longest: int) -> float:
    """Return how often a document's score may be its inner product with the query, at most.

    A score's share f (k1 + 1) / (f + k1 (1 - b + b l / m)) over the stored value is a quotient of linear functions of
    f and l, 1 <= f <= l <= longest: it is largest at a corner, and at one of the means.

    Args:
        weights: Those of the search.
        means: Lowest and highest mean length that values are stored for; 0 before the first.
        longest: No document has more terms.

    """
    if not means[1]:
        return 1.0
    corners = np.array([(1, 1), (1, max(longest, 1)), (max(longest, 1),) * 2], dtype=np.float64)
    counts, lengths = corners.T
    now = weights.saturated(counts, lengths / weights.mean_length)
    return max(float((now / _STORED.saturated(counts, lengths / mean)).max()) for mean in means)


def _sparse_vectors(terms: BatchTerms, mean_length: float) -> list[bytes]:
    """Return the sparse vector of each document; of terms that share a dimension the highest value counts."""
    owners = terms.owners
    lengths = terms.lengths[owners] / mean_length
    values = rounded_up(_STORED.saturated(terms.counts, lengths))
    dimensions = dimensions_of(terms.hashes)
    order = np.lexsort((-values, dimensions, owners))
    owners, dimensions, values = owners[order], dimensions[order], values[order]
    is_first = np.ones(len(owners), dtype=bool)
    is_first[1:] = (owners[1:] != owners[:-1]) | (dimensions[1:] != dimensions[:-1])
    owners, dimensions, values = owners[is_first], dimensions[is_first], values[is_first]
    bounds = np.searchsorted(owners, np.arange(len(terms.lengths) + 1)).tolist()
    return [packed_vector(dimensions[begin:end], values[begin:end]) for begin, end in pairwise(bounds)]


_EMPTY = np.empty(0, dtype=np.int64)
NO_TERMS = BatchTerms(_EMPTY, np.empty(0, dtype=np.uint64), _EMPTY, _EMPTY)
