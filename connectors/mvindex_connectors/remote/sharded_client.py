"""ShardedClient: an index whose shards are behind several servers, with the methods of IndexProtocol that read."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import chain, islice, repeat
from typing import Any, NoReturn

import numpy as np

from mvindex.errors import (
    ConfigError,
    LimitExceeded,
    QueryError,
    ServerFailed,
    ServerUnavailable,
    StoreError,
    TimedOut,
    Unsupported,
)
from mvindex.records import Document, Floats, IndexInfo, SearchResult, ViewScore, check_id, check_ids, sliced
from mvindex.search.like import MAX_LIKE
from mvindex.search.request import SearchRequest, Vector, as_vectors, is_texts
from mvindex.store.filters import Filter
from mvindex.store.protocol import Capabilities
from mvindex.store.shard_layout import shard_of
from mvindex.store.sharded import join_infos
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex.v1 import service_pb2 as service
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.address import Access, Reconnecting, parse_address
from mvindex_connectors.remote.client import RemoteIndex, capabilities_of
from mvindex_connectors.remote.convert import (
    document_from,
    explanations_from,
    info_from,
    result_from,
    stored_from,
    vectors_from,
)
from mvindex_connectors.remote.requests import (
    encode_request,
    explain_requests,
    get_requests,
    list_request,
    renamed,
    search_messages,
)
from mvindex_connectors.remote.retry import CallSettings, RetryingChannel
from mvindex_connectors.remote.shard_calls import Attempt, Replicas, ServedShard, ShardCall, ShardCalls
from mvindex_connectors.remote.shard_search import ShardedSearch


class ShardedClient(Reconnecting, RemoteIndex):
    """An index whose shards are behind several servers, searched as one. Safe to use from several threads.

    Results are those of one index of all documents, ties included. Servers that have the same shard are its replicas:
    an operation goes to one of them by chance, and to another where that is unreachable.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        access: Access | None = None,
        settings: CallSettings | None = None,
        allow_partial: bool = False,
    ) -> None:
        """Connect to the shards.

        Args:
            urls: grpc://host:port/name, or grpcs:// for TLS: of every shard, and of more servers of a shard if any.
                Indexes that are no shards of one are searched together too; ties are then in the order of the urls.
                Servers of one index, or of its snapshots, are its replicas.
            access: Credentials, the same for all; by default from the environment (docs/how-to/serving.md).
            settings: Timeouts and retries; timeout_s is that of a search, whatever calls it takes.
            allow_partial: Leave out shards that are missing or fail; every result says so.

        Raises:
            ConfigError: A URL or the credentials are malformed, or the indexes are no shards of one index.
            ServerUnavailable: A shard's servers cannot be reached.
            StoreError: No server has a shard.

        """
        addresses = [parse_address(url) for url in urls]
        if not addresses:
            raise ConfigError("urls: expected the address of at least one shard, got none")
        for number, address in enumerate(addresses):
            if address in addresses[:number]:
                raise ConfigError(f"{address}: expected each address once, got it twice")
        settings = settings or CallSettings()
        access = self._remember(tuple(urls), access, settings=settings, allow_partial=allow_partial)
        channels = [RetryingChannel(address, access, settings) for address in addresses]
        try:
            self._calls = ShardCalls(channels, settings, allow_partial=allow_partial)
        except BaseException:
            for channel in channels:
                channel.close()
            raise
        self._search = ShardedSearch(self._calls, self._encoded, self._views)

    @property
    def where(self) -> str:
        """The addresses, with commas between; they hold no secret."""
        return self._calls.where

    @property
    def capabilities(self) -> Capabilities:
        """The operations that the index has here: those of its administration are the servers'."""
        return capabilities_of(self._calls.first_info)

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None while an index with an encoder is empty."""
        return self._calls.dim

    @property
    def temperature(self) -> float:
        """The T of DRPQ scoring that is used when a search gives none."""
        return self._calls.first_info.temperature

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """The numbers of the shards that are left out."""
        return self._calls.missing

    def close(self) -> None:
        """Close the connections; calls in progress end."""
        self._calls.close()

    def refresh(self) -> bool:
        """Ask again which servers have which shards, and return False: every call sees their latest state."""
        self._calls.refresh()
        return False

    def info(self) -> IndexInfo:
        """Describe the index: all shards that are there together; its path is the addresses."""

        def read(attempt: Attempt) -> IndexInfo:
            responses = attempt.ask_all("Info", lambda name: service.InfoRequest(index=name))
            infos = [info_from(response, self.where) for response in responses]
            if self._calls.placement.is_one_index:
                return infos[0]
            return join_infos(infos, shards=self._calls.placement.count, missing_shards=attempt.missing)

        return self._calls.attempt(read)

    def _refuse_writing(self, *arguments: Any, **options: Any) -> NoReturn:
        """Raise Unsupported: shards are written where they are."""
        raise Unsupported(f"{self.where}: served shards are read together; write to each where its server is")

    add = add_entries = add_views = update = delete = _refuse_writing

    def get(self, ids: str | Iterable[str]) -> Any:
        """Return the document of an id, or those of several; see IndexProtocol.get().

        StoreError when a shard that may have one is missing.
        """
        checked = check_ids(ids)

        def read(attempt: Attempt) -> dict[str, Document]:
            calls = [
                ShardCall(shard, renamed(request))
                for shard, own in self._by_owner(attempt, checked)
                for request in get_requests("", own)
            ]
            responses = attempt.ask("Get", calls) if calls else []
            found = self._distinct((document.id, document) for each in responses for document in each.documents)
            self._check_complete(attempt, checked, found)
            return {doc_id: document_from(document) for doc_id, document in found.items()}

        found = self._calls.attempt(read)
        if isinstance(ids, str):
            return found.get(ids)
        return [found[doc_id] for doc_id in checked if doc_id in found]

    def scan(
        self, filter: Filter | None = None, limit: int | None = None, after: str | None = None
    ) -> Iterator[Document]:
        """Yield documents in the order in which they were first added; see IndexProtocol.scan().

        StoreError when a shard is missing, also where partial answers are allowed: what is scanned is taken for all.
        """
        attempt = self._calls.attempt(lambda attempt: attempt)
        if attempt.missing:
            raise StoreError(
                f"{self.where}: scan: expected all {self._calls.placement.count} shards, got none of "
                f"{list(attempt.missing)}"
            )
        if self._calls.placement.is_one_index:
            [index] = attempt.shards
            return (document for _, _, document in self._listed(index, list_request("", filter, limit, after)))
        request = list_request("", filter, limit)
        request.with_ordinals = True
        if after is not None:
            request.after_ordinal = self._ordinal_of(check_id(after))
        return self._merged(attempt.shards, request, limit)

    def _merged(
        self, shards: Sequence[ServedShard], request: documents.ListRequest, limit: int | None
    ) -> Iterator[Document]:
        with ExitStack() as stack:
            streams = [stack.enter_context(closing(self._listed(shard, request))) for shard in shards]
            merged = heapq.merge(*streams, key=lambda row: row[:2])
            for _, _, document in islice(merged, limit):
                yield document

    def _listed(self, shard: ServedShard, request: documents.ListRequest) -> Generator[tuple[int, int, Document]]:
        """Yield the ordinals, 0 where none are asked for, and documents of one shard."""
        try:
            for response in self._responses(shard.replicas, request):
                ordinals = response.ordinals if request.with_ordinals else repeat(0, len(response.documents))
                for ordinal, message in zip(ordinals, response.documents, strict=True):
                    yield ordinal, shard.number, document_from(message)
        except (ServerUnavailable, ServerFailed, TimedOut, StoreError, LimitExceeded) as err:
            raise self._calls.named(shard, err) from err

    def _responses(self, replicas: Replicas, request: documents.ListRequest) -> Iterator[Any]:
        """Yield the responses of the first server that can be reached."""
        *others, last = replicas.in_order
        for channel in others:
            responses = self._stream(channel, request)
            try:
                first = next(responses, None)
            except ServerUnavailable:
                continue
            return iter(()) if first is None else chain([first], responses)
        return self._stream(last, request)

    def _stream(self, channel: RetryingChannel, request: documents.ListRequest) -> Iterator[Any]:
        return channel.stream(MvindexServiceStub(channel.grpc_channel).List, renamed(request)(channel.address.name))

    def _ordinal_of(self, doc_id: str) -> int:
        request = list_request("", {"id": doc_id}, 1)
        request.with_ordinals = True
        shards = self._calls.attempt(lambda attempt: [shard for shard, _ in self._by_owner(attempt, [doc_id])])
        for shard in shards:
            for ordinal, _, _ in self._listed(shard, request):
                return ordinal
        raise QueryError(f"{self.where}: after={doc_id!r}: expected the id of a document, got one that is not there")

    def run(self, request: SearchRequest) -> list[SearchResult]:
        """Return a result for each query of the request, over all shards; reranking is done here."""
        if not self._calls.placement.is_one_index:
            return self._search.run(request)
        return [result for message in search_messages("", request) for result in self._anywhere(renamed(message))]

    def _anywhere(self, make: Callable[[str], Any]) -> list[SearchResult]:
        """Return the results of a search by any server of one index: its queries see the same state."""
        response = self._calls.attempt(lambda attempt: attempt.ask_any("Search", make))
        return [result_from(each) for each in response.results]

    def explain_all(
        self, query: str | Vector, ids: str | Iterable[str], scoring: str = "max", *, temperature: float | None = None
    ) -> dict[str, list[ViewScore]]:
        """Return what explain() does for each of the documents that exist, by id, in the order of the ids."""
        checked = check_ids(ids)
        vector = self.encode_queries([query])[0] if isinstance(query, str) else query
        if is_texts(vector) or as_vectors(vector, self.dim).ndim != 1:
            raise QueryError("explain: expected one query, a text or a (d,) vector, got several")

        def read(attempt: Attempt) -> dict[str, list[ViewScore]]:
            calls = [
                ShardCall(shard, renamed(request))
                for shard, own in self._by_owner(attempt, checked)
                for request in explain_requests("", vector, own, scoring, temperature)
            ]
            responses = attempt.ask("Explain", calls) if calls else []
            found = self._distinct(row for each in responses for row in explanations_from(each).items())
            self._check_complete(attempt, checked, found)
            return found

        found = self._calls.attempt(read)
        return {doc_id: found[doc_id] for doc_id in checked if doc_id in found}

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32, by the encoder of any server; QueryError for an empty text."""
        if not texts:
            return np.empty((0, self.dim or 1), dtype=np.float32)
        return self._encoded(texts, self._calls.deadline())

    def _encoded(self, texts: Sequence[str], deadline: float) -> Floats:
        if self._calls.first_info.encoder is None:
            raise QueryError(f"{self.where}: this index was made of given vectors; give vectors, not texts")
        make = renamed(encode_request("", texts))
        response = self._calls.attempt(lambda attempt: attempt.ask_any("Encode", make), deadline)
        return vectors_from(response.vectors)

    def _views(self, ids: Sequence[str]) -> dict[str, Floats]:
        """Return the stored views of the documents that exist, by id; StoreError when a shard is missing."""

        def read(attempt: Attempt) -> dict[str, Floats]:
            owned = [
                (shard, piece)
                for shard, own in self._by_owner(attempt, list(dict.fromkeys(ids)))
                for piece in sliced(own, MAX_LIKE)
            ]
            calls = [ShardCall(shard, renamed(search.EncodeRequest(ids=piece))) for shard, piece in owned]
            responses = attempt.ask("Encode", calls) if calls else []
            found = [stored_from(each, piece) for each, (_, piece) in zip(responses, owned, strict=True)]
            views = self._distinct(row for own in found for row in own.items())
            self._check_complete(attempt, ids, views)
            return views

        return self._calls.attempt(read)

    def _by_owner(self, attempt: Attempt, ids: Sequence[str]) -> list[tuple[ServedShard, list[str]]]:
        """Return the shards that may have some of the ids, with these."""
        placement = self._calls.placement
        if not placement.is_by_id:
            return [(shard, list(ids)) for shard in attempt.shards] if ids else []
        by_number: dict[int, list[str]] = {}
        for doc_id in ids:
            by_number.setdefault(shard_of(doc_id, placement.count), []).append(doc_id)
        return [(self._calls.owner(attempt, number, own[0]), own) for number, own in by_number.items()]

    def _distinct(self, rows: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Return the values by id; StoreError for an id that two shards have."""
        found: dict[str, Any] = {}
        for doc_id, value in rows:
            if doc_id in found:
                raise StoreError(f"{self.where}: document {doc_id!r} is in two of the shards")
            found[doc_id] = value
        return found

    def _check_complete(self, attempt: Attempt, ids: Sequence[str], found: Mapping[str, object]) -> None:
        """Raise StoreError when an id was not found, and a shard that may have it was left out."""
        if not attempt.missing or self._calls.placement.is_by_id:
            return
        for doc_id in ids:
            if doc_id not in found:
                raise StoreError(f"document {doc_id!r} may be in a shard that is missing: {list(attempt.missing)}")
