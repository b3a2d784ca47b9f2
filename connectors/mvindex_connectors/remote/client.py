"""IndexClient: an index behind a server, with the methods of a local one."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
from mvindex.index.options import Vector, checked_id
from mvindex.index.results import IndexInfo, ViewScore

from mvindex.errors import QueryError, Unsupported
from mvindex.index import Index
from mvindex.ingest import Encode, Entry, IngestHooks, IngestReport
from mvindex.records import Document, Floats, SearchResult
from mvindex.scoring.fusion import Fusion, parse_fusion
from mvindex.scoring.rerank import parse_rerank
from mvindex.store.filters import Filter
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex.v1 import service_pb2 as service
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.address import Access, access_from_environment, parse_address
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
    explain_request,
    explain_requests,
    has_queries,
    search_request,
    texts_message,
    update_request,
)
from mvindex_connectors.remote.retry import CallSettings, RetryingChannel
from mvindex_connectors.remote.upload import Upload


class IndexClient(Index):
    """An index behind a server. Safe to use from several threads.

    Idempotent calls are retried with growing pauses while the server is unreachable; an ingest continues where it was
    interrupted. Operations on the directory (build, tune, compact, snapshot) raise Unsupported. Errors are those of the
    index itself.
    """

    def __init__(self, url: str, *, access: Access | None = None, settings: CallSettings | None = None) -> None:
        """Connect to an index.

        Args:
            url: grpc://host:port/name, or grpcs:// for TLS.
            access: Credentials; by default from the environment (docs/serving.md).
            settings: Timeouts and retries.

        Raises:
            ConfigError: The URL or the credentials are malformed.
            NoSuchIndex: The server does not serve this name.
            ServerUnavailable: The server cannot be reached.

        """
        self._address = parse_address(url)
        self._channel = RetryingChannel(self._address, access or access_from_environment(), settings or CallSettings())
        self._stub = MvindexServiceStub(self._channel.grpc_channel)
        try:
            self._info = self.info()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> IndexClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; calls in progress end."""
        self._channel.close()

    def __len__(self) -> int:
        return self.info().documents

    def __iter__(self) -> Iterator[Document]:
        for response in self._channel.stream(self._stub.List, documents.ListRequest(index=self._address.name)):
            yield from map(document_from, response.documents)

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and self.get(doc_id) is not None

    @property
    def url(self) -> str:
        """The address of the index."""
        return str(self._address)

    @property
    def is_untouched(self) -> bool:
        """False: a client must not delete an index of the server."""
        return False

    @property
    def temperature(self) -> float:
        """The default temperature of DRPQ scoring."""
        return self._info.temperature

    @property
    def fusion(self) -> Fusion:
        """The default fusion of hybrid search."""
        tuned = self._info.fusion
        return Fusion() if tuned is None else parse_fusion(tuned["method"], tuned["weights"])

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """The numbers of the shards that the server does not search."""
        return self.info().missing_shards

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None while an index with an encoder is empty."""
        if self._info.dim is None:
            self._info = self.info()
        return self._info.dim

    def info(self) -> IndexInfo:
        """Describe the index; its path is the URL."""
        response = self._channel.call(self._stub.Info, service.InfoRequest(index=self._address.name))
        return info_from(response, self.url)

    def refresh(self) -> bool:
        """Return False: every call sees the server's latest state."""
        return False

    def add_entries(self, entries: Iterable[Entry], hooks: IngestHooks | None = None) -> IngestReport:
        """Add documents with their source locations; the server encodes them. See add()."""
        if self._info.encoder is None:
            raise QueryError(f"{self.url}: this index was made of given vectors; give vectors, not texts")
        return self._ingest(entries, None, hooks)

    def _ingest(self, entries: Iterable[Entry], encode: Encode | None, hooks: IngestHooks | None) -> IngestReport:
        return Upload(self._channel, hooks or IngestHooks()).run(entries)

    def get(self, id: str) -> Document | None:
        """Return the document of this id, or None."""
        request = documents.GetRequest(index=self._address.name, ids=[checked_id(id)])
        found = self._channel.call(self._stub.Get, request).documents
        return document_from(found[0]) if found else None

    def delete(self, *, ids: str | Iterable[str] | None = None, filter: Filter | None = None) -> int:
        """Delete documents by id or by filter in one step, and return how many; unknown ids are ignored."""
        request = delete_request(self._address.name, ids, filter, secrets.token_hex(16))
        return int(self._channel.call(self._stub.Delete, request).deleted)

    def update(self, id: str, *, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a document; QueryError for an unknown id."""
        self._channel.call(self._stub.Update, update_request(self._address.name, id, metadata))

    def search(
        self,
        query: Any,
        top_k: int = 10,
        *args: Any,
        rerank: Any = None,
        rerank_on: str | None = None,
        rerank_depth: int | None = None,
        **options: Any,
    ) -> Any:
        """Return the top_k documents of a query, or of each of several, as Index.search() does.

        Reranking is done here, not by the server.
        """
        reranking = parse_rerank(rerank, rerank_on, rerank_depth, top_k, None)
        if reranking is not None:
            mode = options.get("mode", "dense")
            questions, options["text"] = reranking.questions(query, mode, options.get("text"))
            return reranking.reranked(questions, self.search(query, reranking.depth, *args, **options), mode)
        request, is_single = search_request(self._address.name, query, top_k, *args, **options)
        if not is_single and not has_queries(request):
            return []
        results: list[SearchResult] = [
            result_from(each) for each in self._channel.call(self._stub.Search, request).results
        ]
        return results[0] if is_single else results

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32, by the server's encoder; QueryError for an empty text."""
        if not texts:
            return np.empty((0, self.dim or 1), dtype=np.float32)
        request = search.EncodeRequest(index=self._address.name, texts=texts_message(texts))
        return vectors_from(self._channel.call(self._stub.Encode, request).vectors)

    def explain(
        self, query: str | Vector, id: str, scoring: str = "max", *, temperature: float | None = None
    ) -> list[ViewScore]:
        """Return every view of a document with its score for the query, best first; QueryError for an unknown id."""
        request = explain_request(self._address.name, query, id, scoring, temperature)
        return [view_from(view) for view in self._channel.call(self._stub.Explain, request).views]

    def explain_all(
        self, query: str | Vector, ids: str | Iterable[str], scoring: str = "max", *, temperature: float | None = None
    ) -> dict[str, list[ViewScore]]:
        """Return explain() of each of the documents that exist, by id, in the order of the ids."""
        found: dict[str, list[ViewScore]] = {}
        for request in explain_requests(self._address.name, query, ids, scoring, temperature):
            found |= explanations_from(self._channel.call(self._stub.Explain, request))
        return found

    @property
    def settings(self) -> Mapping[str, Any]:
        """Unsupported; see info()."""
        raise self._unsupported("settings")

    @property
    def where(self) -> str:
        """The address."""
        return self.url

    @property
    def next_ordinal(self) -> NoReturn:
        """Unsupported: stored rows are the server's."""
        raise self._unsupported("next_ordinal")

    def batches(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported: stored rows are the server's."""
        raise self._unsupported("copying documents as stored")

    def take(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported: stored rows are the server's."""
        raise self._unsupported("copying documents as stored")

    def remove_untouched(self) -> None:
        """Close the connection; the index stays on the server."""
        self.close()

    @property
    def path(self) -> Path:
        """Unsupported: the directory is the server's."""
        raise self._unsupported("path")

    @property
    def store(self) -> NoReturn:
        """Unsupported: the store is the server's."""
        raise self._unsupported("store")

    @property
    def store_paths(self) -> list[Path]:
        """Unsupported: the directories are the server's."""
        raise self._unsupported("store_paths")

    @property
    def encoder(self) -> NoReturn:
        """Unsupported: the encoder is the server's."""
        raise self._unsupported("encoder")

    def use_encoder(self, encoder: Any) -> NoReturn:
        """Unsupported: the encoder is the server's."""
        raise self._unsupported("use_encoder")

    def set_lexical(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported."""
        raise self._unsupported("set_lexical")

    def tune_fusion(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported."""
        raise self._unsupported("tune_fusion")

    def set_fusion(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported."""
        raise self._unsupported("set_fusion")

    def rebuild_lexical_if_damaged(self) -> NoReturn:
        """Unsupported."""
        raise self._unsupported("rebuild_lexical_if_damaged")

    def build(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported."""
        raise self._unsupported("build")

    def tune(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported."""
        raise self._unsupported("tune")

    def compact(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported."""
        raise self._unsupported("compact")

    def snapshot(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported."""
        raise self._unsupported("snapshot")

    def probe(self) -> NoReturn:
        """Unsupported."""
        raise self._unsupported("probe")

    def verify(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported."""
        raise self._unsupported("verify")

    def _unsupported(self, what: str) -> Unsupported:
        return Unsupported(f"{self.url}: {what} works on an index directory only. Run it on the server's machine")
