"""RemoteIndex: what the blocking clients have in common, those of one server and of several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mvindex.index.arrow import arrow_reader
from mvindex.index.protocol import Searches
from mvindex.records import Document, IndexInfo
from mvindex.store.filters import Filter
from mvindex.store.protocol import Capabilities, Operation

if TYPE_CHECKING:
    from typing_extensions import Self


class RemoteIndex(Searches, ABC):
    """An index that servers have; the other methods of IndexProtocol are those of its subclasses."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __len__(self) -> int:
        return self.info().documents

    def __iter__(self) -> Iterator[Document]:
        return self.scan()

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and self.get(doc_id) is not None

    @property
    @abstractmethod
    def where(self) -> str:
        """The address; it holds no secret."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """The operations that the index has here: those of its administration are the server's."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; calls in progress end."""

    @abstractmethod
    def info(self) -> IndexInfo:
        """Describe the index; its path is the address."""

    @abstractmethod
    def get(self, ids: str | Iterable[str]) -> Any:
        """Return the document of an id, or those of several; see IndexProtocol.get()."""

    @abstractmethod
    def scan(
        self, filter: Filter | None = None, limit: int | None = None, after: str | None = None
    ) -> Iterator[Document]:
        """Yield documents in the order in which they were first added; see IndexProtocol.scan()."""

    def warm_up(self) -> bool:
        """Return True: a server loads what searches need when it starts."""
        return True

    def views(self, ids: str | Iterable[str]) -> Any:
        """Raise Unsupported: no message carries spans and snippets with stored vectors."""
        self.capabilities.check(Operation.TRANSFER, self.where)

    def to_arrow(self, filter: Filter | None = None, *, views: bool = False) -> Any:
        """Return the documents as a stream of Arrow, without views; see IndexProtocol.to_arrow()."""
        if views:
            self.capabilities.check(Operation.TRANSFER, self.where)
        return arrow_reader(self, filter, views=False)  # type: ignore[arg-type]  # the clients are IndexProtocols


def capabilities_of(info: IndexInfo) -> Capabilities:
    """Return the operations of an index behind a server: lexical search where it has one, no administration."""
    reasons = dict.fromkeys(Operation, "a server has the index; do it where the server is")
    by_job = (Operation.BUILD, Operation.TUNE, Operation.COMPACT, Operation.SNAPSHOT)
    reasons |= dict.fromkeys(by_job, "a server has the index, and does it by a job: index.admin, or the command")
    reasons[Operation.REEMBED] = "a server has the index; stop it, and re-embed the directory where the server is"
    if info.lexical is None:
        reasons[Operation.LEXICAL] = "the index has no lexical side; add one where the server is"
    else:
        del reasons[Operation.LEXICAL]
    return Capabilities(reasons)
