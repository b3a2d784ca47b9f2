"""Documents whose views are given, on their way from files into an index: checked, and as batches of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import ConfigError, CorpusError, DocumentError, StoreError
from mvindex.ingest import CHUNK_DOCUMENTS, Entry, SeenIds, refuse_duplicate
from mvindex.records import Document, Views
from mvindex.store.embedded import Batch, content_hash
from mvindex.store.settings import MAX_DIM
from mvindex.store.views import ViewType, pack_views

Told = Callable[[str, int, "int | None"], None]
Array = npt.NDArray[Any]


class Missing(Enum):
    """What is done with a passage without a vector, and a vector without a passage."""

    STOP = "stop"
    SKIP = "skip"


class Given(NamedTuple):
    """A document, where it stands, its views (k, d), their spans (k, 2) with -1 for none, and its ordinal if kept."""

    place: str
    document: Document
    rows: Array
    spans: Array | None = None
    ordinal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of fields; None: those that are usual. text and title: "text" and "title" where there are such."""

    id: str | None = None
    vector: str | None = None
    text: str | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        named = [name for name in (self.id, self.vector, self.text, self.title) if name is not None]
        if "" in named or len(set(named)) < len(named):
            raise ConfigError(f"the columns {', '.join(map(repr, named))} must have names, all different")


@dataclass(slots=True, kw_only=True)
class VectorSource:
    """Documents with their views, ready to be read once.

    dtype: of the numbers as the files hold them; total: documents, where known; notes: what was left out, by name.
    """

    dim: int
    dtype: np.dtype[Any]
    given: Iterator[Given]
    total: int | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


ID_NAMES = ("doc_id", "id", "_id", "document_id")
VECTOR_NAMES = ("vector", "vectors", "embedding", "embeddings")


def chosen_name(path: str, columns: Sequence[str], asked: str | None, usual: Sequence[str], option: str) -> str:
    """The column that is meant; CorpusError, with the option that names one, where none or several could be."""
    found = [name for name in (usual if asked is None else (asked,)) if name in columns]
    if len(found) == 1:
        return found[0]
    has = f"the columns here are {', '.join(columns) or 'none'}"
    if not found:
        raise CorpusError(f"{path}: no column {asked or ' or '.join(usual)!r}; {has}; name one by {option}")
    raise CorpusError(f"{path}: columns {' and '.join(found)} could both be meant; name one by {option}")


def checked_id(place: str, doc_id: str) -> str:
    """The id; CorpusError, with its place, when no document may have it."""
    try:
        Document(doc_id, "")
    except DocumentError as err:
        raise CorpusError(f"{place}: {err}") from err
    return doc_id


def check_dim(place: str, found: int, wanted: int) -> None:
    """Nothing; CorpusError when vectors have another number of dims."""
    if found != wanted:
        raise CorpusError(f"{place}: vectors of {found} dims; those before have {wanted}")


def check_first_dim(place: str, dim: int) -> None:
    """Nothing; CorpusError for what is no number of dims that an index takes."""
    if not 1 <= dim <= MAX_DIM:
        raise CorpusError(f"{place}: vectors of {dim} dims; wanted 1 to {MAX_DIM}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the index keeps. is_encoded: it has an encoder, and knows documents by their texts alone, as ingest does."""

    dim: int
    view_type: ViewType
    is_encoded: bool


def batches_of(given: Iterable[Given], kept: Kept) -> Iterator[Batch]:
    """The documents in batches for a store; CorpusError at the first that is wrong, or whose id came before."""
    iterator = iter(given)
    with SeenIds() as seen:
        while batch := list(islice(iterator, CHUNK_DOCUMENTS)):
            seen.first_of([Entry(one.place, one.document) for one in batch], refuse_duplicate)
            yield _batch(batch, kept)


def _batch(given: Sequence[Given], kept: Kept) -> Batch:
    for one in given:
        check_dim(one.place, one.rows.shape[1], kept.dim)
    counts = [len(one.rows) for one in given]
    with np.errstate(over="ignore"):  # what overflows is found, and named, when it is packed
        rows = np.concatenate([one.rows for one in given]).astype(np.float32)
    spans = np.concatenate([_checked_spans(one) for one in given])
    starts = np.append(0, np.cumsum(counts))
    ordinals = [one.ordinal for one in given if one.ordinal is not None]
    if ordinals and len(ordinals) < len(given):
        raise CorpusError(f"{given[0].place}: some documents from here on have an ordinal, and some have none")
    views = [None if kept.is_encoded else rows[begin:end] for begin, end in zip(starts[:-1], starts[1:], strict=True)]
    batch = Batch(
        documents=[one.document for one in given],
        views=Views(rows, starts, spans),
        content_hashes=[content_hash(one.document, own) for one, own in zip(given, views, strict=True)],
        ordinals=np.array(ordinals, dtype=np.int64) if ordinals else None,
    )
    try:
        # Tried before it is stored: bad input is told from a disk that is full.
        pack_views(batch.views, kept.view_type, [one.document.id for one in given])
    except StoreError as err:
        raise CorpusError(f"{given[0].place} and below: {err}") from err
    return batch


def _checked_spans(one: Given) -> Array:
    """The spans of a document's views, -1 where there are none; CorpusError for one that is not in the text."""
    if one.spans is None:
        return np.full((len(one.rows), 2), -1, dtype=np.int64)
    begins, ends = one.spans[:, 0], one.spans[:, 1]
    is_none = (begins == -1) & (ends == -1)
    is_bad = ~is_none & ~((begins >= 0) & (begins <= ends) & (ends <= len(one.document.text)))
    if is_bad.any():
        slot = int(np.argmax(is_bad))
        raise CorpusError(
            f"{one.place}: document {one.document.id!r}: view {slot} stands for characters {begins[slot]} to "
            f"{ends[slot]}; its text has {len(one.document.text)}"
        )
    return one.spans
