"""Store: what an index asks of the place that holds its documents and views, and what such a place cannot do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from mvindex.errors import Unsupported
from mvindex.records import Floats, IndexInfo, Ints

if TYPE_CHECKING:
    from mvindex.store.catalog import ExistingDocument
    from mvindex.store.filters import Filter
    from mvindex.store.reader import StoredDocument
    from mvindex.store.rows import Batch
    from mvindex.store.views import ViewType


class Operation(Enum):
    """An operation that some stores do not have."""

    LEXICAL = "lexical search"
    FILTER_FIELDS = "declared filter fields"
    BUILD = "build"
    TUNE = "tune"
    COMPACT = "compact"
    REEMBED = "re-embedding"
    SNAPSHOT = "snapshot"
    VERIFY = "verify"
    TRANSFER = "reading documents and views as stored"
    FILES = "working on the files of an index"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Which operations an index has, known before one is called.

    Attributes:
        unsupported: Each missing operation, with the reason and the way out.

    """

    unsupported: Mapping[Operation, str] = field(default_factory=dict)

    def supports(self, operation: Operation) -> bool:
        """Return whether the index has the operation."""
        return operation not in self.unsupported

    def check(self, operation: Operation, where: str) -> None:
        """Raise Unsupported, with the reason and the way out, unless the index at `where` has the operation."""
        if operation in self.unsupported:
            raise Unsupported(f"{where}: {operation.value} is not supported: {self.unsupported[operation]}")


class Store(Protocol):
    """Documents and views of one index, as its readers need them."""

    @property
    def where(self) -> str:
        """The directory, or the address without secrets, for messages."""

    def reopening(self) -> Mapping[str, Any]:
        """Return the arguments of open_index() for a copy; StoreError where the store is closed or being written to."""

    @property
    def capabilities(self) -> Capabilities:
        """The operations that the store has."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the index as of the state that is read."""

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None until the first batch of an index with an encoder."""

    @property
    def view_type(self) -> ViewType:
        """The number type of stored views."""

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """The numbers of the shards that are left out."""

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was ever stored."""

    def close(self) -> None:
        """Close files and connections."""

    def refresh(self) -> bool:
        """Move on to the latest committed state; return whether there was a newer one."""

    def remove_if_untouched(self) -> None:
        """Close the store, and remove it if nothing was ever stored in it, by anyone."""

    def count(self) -> int:
        """Return the number of documents."""

    def info(self) -> IndexInfo:
        """Describe the index."""

    def get(self, ids: Sequence[str]) -> dict[str, StoredDocument]:
        """Return the documents of the ids that exist, by id, all of one state."""

    def scan(self, condition: Filter | None, after: str | None) -> Iterator[StoredDocument]:
        """Yield the documents that match, in the order in which they were first added.

        Args:
            condition: A metadata filter; None for all documents.
            after: The id of a document to go on behind; QueryError when there is no such document.

        """

    def views(self, ids: Sequence[str]) -> dict[str, tuple[StoredDocument, Floats]]:
        """Return each of the documents that exist with its views, (k, d) as stored, by id."""

    def vectors(self, ids: Sequence[str]) -> dict[str, Floats]:
        """Return the views, (k, d) as stored, of each of the documents that exist, by id."""

    def stored(self, ids: Sequence[str], encoder: str) -> Iterator[Batch]:
        """Yield the documents of the ids that exist, as stored, all of one state or of one for each part.

        encoder: a fingerprint; there are no documents where the views are of another encoder.
        """

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield all documents as they are stored, up to `size` at a time."""

    def matching(self, condition: Filter) -> Ints:
        """Return the rows of the documents that match, (m,) int64."""

    def known(self, ids: Sequence[str]) -> Mapping[str, ExistingDocument]:
        """Return what is stored of the ids that exist, as committed now."""

    def has_mark(self, mark: str) -> bool:
        """Return whether the whole write of this mark was carried out, as of the state that is read."""

    def writing(self) -> AbstractContextManager[Writer]:
        """Take the writer lock, and yield the only writer; IndexLocked when there is another."""


class Writer(Protocol):
    """Writes to one store while it has the writer lock; each call is one durable step.

    `row` is a number that the store gives a document, valid as long as the writer is.
    """

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings as written last."""

    def known(self, ids: Sequence[str]) -> Mapping[str, ExistingDocument]:
        """Return what is stored of the ids that exist, as committed now."""

    def has_mark(self, mark: str) -> bool:
        """Return whether the whole write of this mark was carried out."""

    def commit(self, batch: Batch, known: Mapping[str, ExistingDocument]) -> None:
        """Store a batch: new documents are added, known ones replaced.

        known: what known() has returned, for the ids of the batch at least.
        """

    def delete(self, doc_rows: Iterable[int], mark: str = "") -> int:
        """Delete the documents of these rows; return how many.

        mark: names the write, and is stored with it: of one that was carried out the number is returned again.
        """

    def set_metadata(self, updates: Mapping[int, str], mark: str = "") -> None:
        """Set metadata (canonical JSON) by document row, and store the mark with it."""

    def change_settings(self, **settings: Any) -> None:
        """Set settings."""
