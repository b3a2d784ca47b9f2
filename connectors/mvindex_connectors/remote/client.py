"""IndexClient: an index behind a server, with the methods of IndexProtocol; RemoteIndex: what all clients share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.errors import QueryError
from mvindex.index.arrow import arrow_reader
from mvindex.index.protocol import Searches
from mvindex.ingest import Entry, IngestHooks, IngestReport, view_entries
from mvindex.ingest.items import Items, item_entries
from mvindex.records import (
    Document,
    Explanation,
    Floats,
    Hit,
    IndexInfo,
    SearchResult,
    ViewScore,
    ViewSpans,
    to_explain,
)
from mvindex.search.request import SearchRequest, Vector, checked_texts
from mvindex.store.filters import Filter
from mvindex.store.protocol import Capabilities, Operation
from mvindex.v1 import service_pb2 as service
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.coroutines import run_to_end
from mvindex_connectors.remote.address import Access, Reconnecting, parse_address
from mvindex_connectors.remote.admin import ServerAdmin
from mvindex_connectors.remote.convert import (
    document_from,
    explanations_from,
    info_from,
    result_from,
    vectors_from,
    view_from,
)
from mvindex_connectors.remote.requests import (
    delete_request,
    encode_request,
    explain_request,
    explain_requests,
    get_requests,
    list_request,
    search_messages,
    update_request,
)
from mvindex_connectors.remote.retry import CallSettings, RetryingChannel
from mvindex_connectors.remote.upload import Upload

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


class IndexClient(Reconnecting, RemoteIndex):
    """An index behind a server. Safe to use from several threads.

    Idempotent calls are retried with growing pauses while the server is unreachable; an ingest continues where it was
    interrupted. Errors are those of the index itself.
    """

    def __init__(self, url: str, *, access: Access | None = None, settings: CallSettings | None = None) -> None:
        """Connect to an index.

        Args:
            url: grpc://host:port/name, or grpcs:// for TLS.
            access: Credentials; by default from the environment (docs/how-to/serving.md).
            settings: Timeouts and retries.

        Raises:
            ConfigError: The URL or the credentials are malformed.
            NoSuchIndex: The server does not serve this name.
            ServerUnavailable: The server cannot be reached.

        """
        self._address = parse_address(url)
        settings = settings or CallSettings()
        self._channel = RetryingChannel(self._address, self._remember(url, access, settings=settings), settings)
        self._stub = MvindexServiceStub(self._channel.grpc_channel)
        try:
            self._info = self.info()
        except BaseException:
            self.close()
            raise

    @property
    def where(self) -> str:
        """The address; it holds no secret."""
        return str(self._address)

    @property
    def access(self) -> Access:
        """The credentials of the client."""
        return self._channel.access

    @property
    def call_settings(self) -> CallSettings:
        """The timeouts and retries of the client."""
        return self._channel.settings

    @property
    def admin(self) -> ServerAdmin:
        """The administration of the index, by jobs of the server; for tokens of role admin."""
        return ServerAdmin.over(self._channel)

    @property
    def capabilities(self) -> Capabilities:
        """The operations that the index has here: those of its administration are the server's."""
        return capabilities_of(self._info)

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None while an index with an encoder is empty."""
        if self._info.dim is None:
            self._info = self.info()
        return self._info.dim

    @property
    def temperature(self) -> float:
        """The T of DRPQ scoring that is used when a search gives none."""
        return self._info.temperature

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """The numbers of the shards that the server does not search."""
        return self.info().missing_shards

    def close(self) -> None:
        """Close the connection; calls in progress end."""
        self._channel.close()

    def refresh(self) -> bool:
        """Return False: every call sees the server's latest state."""
        return False

    def info(self) -> IndexInfo:
        """Describe the index; its path is the address."""
        response = self._channel.call(self._stub.Info, service.InfoRequest(index=self._address.name))
        return info_from(response, self.where)

    def add(
        self,
        documents: Items,
        *,
        text_field: str | None = None,
        hooks: IngestHooks | None = None,
        progress: bool = False,
    ) -> IngestReport:
        """Store documents, which the server encodes; see IndexProtocol.add()."""
        return self.add_entries(item_entries(documents, text_field=text_field, progress=progress), hooks)

    def add_entries(self, entries: Iterable[Entry], hooks: IngestHooks | None = None) -> IngestReport:
        """Store documents that know their source location; otherwise as add()."""
        check_encodes(self._info)
        return run_to_end(Upload(self._channel, hooks or IngestHooks()).run(entries))

    def add_views(
        self,
        documents: Iterable[Document],
        views: Vector | Sequence[Vector],
        *,
        spans: ViewSpans | None = None,
        hooks: IngestHooks | None = None,
    ) -> IngestReport:
        """Store documents whose views are given; see IndexProtocol.add_views()."""
        entries = view_entries(documents, views, self.dim, spans)
        return run_to_end(Upload(self._channel, hooks or IngestHooks()).run(entries))

    def get(self, ids: str | Iterable[str]) -> Any:
        """Return the document of an id, or those of several, of one state per 4,096; see IndexProtocol.get()."""
        responses = [self._channel.call(self._stub.Get, request) for request in get_requests(self._address.name, ids)]
        found = [document_from(message) for response in responses for message in response.documents]
        if isinstance(ids, str):
            return found[0] if found else None
        return found

    def scan(
        self, filter: Filter | None = None, limit: int | None = None, after: str | None = None
    ) -> Iterator[Document]:
        """Yield documents in the order in which they were first added; see IndexProtocol.scan()."""
        responses = self._channel.stream(self._stub.List, list_request(self._address.name, filter, limit, after))
        return (document_from(message) for response in responses for message in response.documents)

    def update(self, id: str, *, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a document. QueryError when there is no such id."""
        self._channel.call(self._stub.Update, update_request(self._address.name, id, metadata))

    def delete(self, ids: str | Iterable[str] | None = None, *, filter: Filter | None = None, all: bool = False) -> int:
        """Delete documents by id, by a filter, or all, in one step; return how many there were."""
        request = delete_request(self._address.name, ids, filter, all)
        return int(self._channel.call(self._stub.Delete, request).deleted)

    def run(self, request: SearchRequest) -> list[SearchResult]:
        """Return the server's result for each query of the request; reranking is done here.

        Queries are sent up to 4,096 at a time, each time to one state of the index.
        """
        responses = (
            self._channel.call(self._stub.Search, message) for message in search_messages(self._address.name, request)
        )
        return [result_from(each) for response in responses for each in response.results]

    def explain(
        self,
        query: str | Vector | Hit,
        id: str | Hit | None = None,
        scoring: str | None = None,
        *,
        temperature: float | None = None,
    ) -> Explanation:
        """Return every view of a document with its score for one query; see IndexProtocol.explain()."""
        asked = to_explain(query, id, scoring, temperature)
        request = explain_request(self._address.name, asked.query, asked.id, asked.scoring, asked.temperature)
        return Explanation(map(view_from, self._channel.call(self._stub.Explain, request).views), asked.document)

    def explain_all(
        self, query: str | Vector, ids: str | Iterable[str], scoring: str = "max", *, temperature: float | None = None
    ) -> dict[str, list[ViewScore]]:
        """Return what explain() does for each of the documents that exist, by id, in the order of the ids."""
        found: dict[str, list[ViewScore]] = {}
        for request in explain_requests(self._address.name, query, ids, scoring, temperature):
            found |= explanations_from(self._channel.call(self._stub.Explain, request))
        return found

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32, by the server's encoder; QueryError for an empty text."""
        texts = checked_texts(texts)
        if not texts:
            return np.empty((0, self.dim or 1), dtype=np.float32)
        return vectors_from(self._channel.call(self._stub.Encode, encode_request(self._address.name, texts)).vectors)


def check_encodes(info: IndexInfo) -> None:
    """Raise QueryError unless the index encodes texts."""
    if info.encoder is None:
        raise QueryError(f"{info.path}: this index was made of given vectors; give vectors, not texts")
