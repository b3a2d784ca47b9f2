"""Store: what an index asks of the place that holds its documents and views, and what such a place cannot do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from mvindex.errors import Unsupported
from mvindex.records import Floats, IndexInfo, Ints

if TYPE_CHECKING:
    from mvindex.store.batch import Batch
    from mvindex.store.catalog import ExistingDocument
    from mvindex.store.embedded import EmbeddedStore
    from mvindex.store.filters import Filter
    from mvindex.store.reader import StoredDocument
    from mvindex.store.views import ViewType

T = TypeVar("T")


class Operation(Enum):
    """An operation that some stores do not have."""

    LEXICAL = "lexical search"
    FILTER_FIELDS = "declared filter fields"
    BUILD = "build"
    TUNE = "tune"
    COMPACT = "compact"
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


class StorePart(NamedTuple):
    """One of the embedded stores that are searched together; inside errors(), an error names the shard."""

    store: EmbeddedStore
    errors: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True, slots=True)
class Sharding:
    """The shards of an index that are written here, by number, out of `count`."""

    stores: Mapping[int, EmbeddedStore]
    count: int


class Store(Protocol):
    """Documents and views of one index. `row` is a number that the store gives a document, valid inside writing()."""

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
    def sharding(self) -> Sharding | None:
        """The shards to be written; None for a store without. StoreError when one is missing."""

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

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield all documents as they are stored, up to `size` at a time."""

    def parts(self) -> Sequence[StorePart]:
        """Return the embedded stores that are read together; empty for a store that has none."""

    def writing(self) -> AbstractContextManager[None]:
        """Take the writer lock: inside, this is the only writer; IndexLocked when there is another."""

    def known(self, ids: Sequence[str]) -> dict[str, ExistingDocument]:
        """Return what is stored of the ids that exist, as committed now."""

    def matching(self, condition: Filter) -> Ints:
        """Return the rows of the documents that match, (m,) int64."""

    def commit(self, batch: Batch) -> None:
        """Store a batch durably: new documents are added, known ids replaced. Call inside writing()."""

    def delete(self, doc_rows: Iterable[int], mark: str = "") -> int:
        """Delete the documents of these rows; return how many. Call inside writing().

        mark: names the write, and is stored with it: of one that was carried out the number is returned again.
        """

    def set_metadata(self, updates: Mapping[int, str], mark: str = "") -> None:
        """Set metadata (canonical JSON) by document row, and store the mark with it. Call inside writing()."""

    def has_mark(self, mark: str) -> bool:
        """Return whether the whole write of this mark was carried out, as of the state that is read."""

    def change_settings(self, **settings: Any) -> None:
        """Set settings durably. Call inside writing()."""


class LocalStore(Store, Protocol):
    """A store whose views are in files of this machine, in one part or in several."""

    def all_parts(self) -> Sequence[StorePart]:
        """Return all parts, for an operation that needs the whole index; StoreError when one is missing."""

    def scan_ordinals(self, condition: Filter | None, after: str | int | None) -> Iterator[tuple[int, StoredDocument]]:
        """Yield (ordinal, document) as scan() does, behind the document of an id or behind an ordinal."""

    def attempt(self, read: Callable[[], T]) -> T:
        """Return what `read` returns; where partial answers are allowed, call it again without a part that failed."""
