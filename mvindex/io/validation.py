"""Documents with their views, read from files: checked, and made into batches of a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import ConfigError, CorpusError, DocumentError, StoreError
from mvindex.ingest import CHUNK_DOCUMENTS, Entry, IngestReport, SeenIds, refuse_duplicate
from mvindex.records import Document, Views
from mvindex.store.batch import Batch, content_hash
from mvindex.store.snapshot import MAX_DIM
from mvindex.store.views import ViewType, pack_views

Array = npt.NDArray[Any]


class MissingPolicy(Enum):
    """Policy for a document of the corpus without a vector, and a vector without a document."""

    STOP = "stop"
    SKIP = "skip"


class VectorDocument(NamedTuple):
    """A document with its location, its views (k, d), their spans (k, 2) with -1 for none, and its ordinal, if any."""

    source_location: str
    document: Document
    rows: Array
    spans: Array | None = None
    ordinal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of columns or fields; None for the default names, where the file has them."""

    id: str | None = None
    vector: str | None = None
    text: str | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        named = [name for name in (self.id, self.vector, self.text, self.title) if name is not None]
        if "" in named or len(set(named)) < len(named):
            raise ConfigError(f"the columns {', '.join(map(repr, named))} must have different names that are not empty")


@dataclass(slots=True, kw_only=True)
class VectorSource:
    """Documents with their views, to be read once.

    dtype: of the numbers in the files. total: number of documents, where known. notes: counts of what was left out.
    """

    dim: int
    dtype: np.dtype[Any]
    documents: Iterator[VectorDocument]
    total: int | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


ID_NAMES = ("doc_id", "id", "_id", "document_id")
VECTOR_NAMES = ("vector", "vectors", "embedding", "embeddings")


def choose_column(path: str, columns: Sequence[str], named: str | None, defaults: Sequence[str], option: str) -> str:
    """Return the named column, else the default one; raise CorpusError where none or several match."""
    found = [name for name in (defaults if named is None else (named,)) if name in columns]
    if len(found) == 1:
        return found[0]
    has = f"the columns here are {', '.join(columns) or 'none'}"
    if not found:
        raise CorpusError(f"{path}: no column {named or ' or '.join(defaults)!r}; {has}; choose one by {option}")
    raise CorpusError(f"{path}: columns {' and '.join(found)} both match; choose one by {option}")


def check_id(location: str, doc_id: str) -> str:
    """Return the id; raise CorpusError, with its location, when no document may have it."""
    try:
        Document(doc_id, "")
    except DocumentError as err:
        raise CorpusError(f"{location}: {err}") from err
    return doc_id


def check_dim(location: str, dim: int, expected: int) -> None:
    """Raise CorpusError when vectors have another number of dims than those before."""
    if dim != expected:
        raise CorpusError(f"{location}: expected vectors of {expected} dims, as before, got {dim}")


def check_first_dim(location: str, dim: int) -> None:
    """Raise CorpusError when no index stores vectors of so many dims."""
    if not 1 <= dim <= MAX_DIM:
        raise CorpusError(f"{location}: expected vectors of 1 to {MAX_DIM} dims, got {dim}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSchema:
    """How the new index stores views. is_encoded: it has an encoder, and compares documents by their texts only."""

    dim: int
    view_type: ViewType
    is_encoded: bool


def make_batches(documents: Iterable[VectorDocument], schema: TargetSchema) -> Iterator[Batch]:
    """Yield the documents in batches for a store; raise CorpusError at the first bad one or repeated id."""
    iterator = iter(documents)
    with SeenIds() as seen:
        while batch := list(islice(iterator, CHUNK_DOCUMENTS)):
            seen.drop_repeats(
                [Entry(one.source_location, one.document) for one in batch], refuse_duplicate, IngestReport()
            )
            yield _make_batch(batch, schema)


def _make_batch(documents: Sequence[VectorDocument], schema: TargetSchema) -> Batch:
    for one in documents:
        check_dim(one.source_location, one.rows.shape[1], schema.dim)
    counts = [len(one.rows) for one in documents]
    with np.errstate(over="ignore"):  # what overflows is found, and named, when it is packed
        rows = np.concatenate([one.rows for one in documents]).astype(np.float32)
    spans = np.concatenate([_check_spans(one) for one in documents])
    starts = np.append(0, np.cumsum(counts))
    ordinals = [one.ordinal for one in documents if one.ordinal is not None]
    if ordinals and len(ordinals) < len(documents):
        raise CorpusError(
            f"{documents[0].source_location}: some documents from here on have an ordinal, and some have none"
        )
    views = [None if schema.is_encoded else rows[begin:end] for begin, end in zip(starts[:-1], starts[1:], strict=True)]
    try:
        # Before it is stored, so that bad input is distinguished from a full disk.
        packed = pack_views(Views(rows, starts, spans), schema.view_type, [one.document.id for one in documents])
    except StoreError as err:
        raise CorpusError(f"{documents[0].source_location} and below: {err}") from err
    return Batch(
        documents=[one.document for one in documents],
        views=packed,
        content_hashes=[
            content_hash(one.document, own, None if own is None else one.spans)
            for one, own in zip(documents, views, strict=True)
        ],
        ordinals=np.array(ordinals, dtype=np.int64) if ordinals else None,
    )


def _check_spans(one: VectorDocument) -> Array:
    """Return the spans of a document's views, -1 where there are none; raise CorpusError for one outside the text."""
    if one.spans is None:
        return np.full((len(one.rows), 2), -1, dtype=np.int64)
    begins, ends = one.spans[:, 0], one.spans[:, 1]
    is_none = (begins == -1) & (ends == -1)
    is_bad = ~is_none & ~((begins >= 0) & (begins <= ends) & (ends <= len(one.document.text)))
    if is_bad.any():
        slot = int(np.argmax(is_bad))
        raise CorpusError(
            f"{one.source_location}: document {one.document.id!r}: view {slot} stands for characters {begins[slot]} to "
            f"{ends[slot]}; its text has {len(one.document.text)}"
        )
    return one.spans
