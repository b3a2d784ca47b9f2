"""IndexClient: an index behind a server, with the methods of one that is not."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from mvindex.errors import QueryError, Unsupported
from mvindex.index import Index
from mvindex.index.options import Vector, checked_id
from mvindex.index.results import IndexInfo, ViewScore
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
    num_queries,
    search_request,
    texts_message,
    update_request,
)
from mvindex_connectors.remote.retry import Caller, CallSettings
from mvindex_connectors.remote.upload import Ingest


class IndexClient(Index):
    """An index behind a server. Safe to use from several threads.

    Calls that may be repeated are, with growing pauses, while the server is away; an ingest goes on where it was. What
    only its owner does (build, tune, compact, snapshot) raises Unsupported. Errors are those of the index.
    """

    def __init__(self, url: str, *, access: Access | None = None, settings: CallSettings | None = None) -> None:
        """access: by default what the environment says (docs/serving.md). NoSuchIndex for a name that is not served."""
        self._address = parse_address(url)
        self._caller = Caller(self._address, access or access_from_environment(), settings or CallSettings())
        self._stub = MvindexServiceStub(self._caller.channel)
        try:
            self._made = self.info()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> IndexClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Nothing; the connection is closed, and calls under way end."""
        self._caller.close()

    def __len__(self) -> int:
        return self.info().documents

    def __iter__(self) -> Iterator[Document]:
        for response in self._caller.stream(self._stub.List, documents.ListRequest(index=self._address.name)):
            yield from map(document_from, response.documents)

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and self.get(doc_id) is not None

    @property
    def url(self) -> str:
        """Where the index is."""
        return str(self._address)

    @property
    def is_untouched(self) -> bool:
        """False: what a server holds is not ours to throw away."""
        return False

    @property
    def temperature(self) -> float:
        """What DRPQ scoring divides view scores by, unless a search says otherwise."""
        return self._made.temperature

    @property
    def fusion(self) -> Fusion:
        """How hybrid search fuses views and words, unless a search says otherwise."""
        made = self._made.fusion
        return Fusion() if made is None else parse_fusion(made["method"], made["weights"])

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """The numbers of the shards that the server has left out."""
        return self.info().missing_shards

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None while an index with an encoder is empty."""
        if self._made.dim is None:
            self._made = self.info()
        return self._made.dim

    def info(self) -> IndexInfo:
        """What the index is; its path is the URL."""
        response = self._caller.call(self._stub.Info, service.InfoRequest(index=self._address.name))
        return info_from(response, self.url)

    def refresh(self) -> bool:
        """False: every call sees the server's latest state."""
        return False

    def add_entries(self, entries: Iterable[Entry], hooks: IngestHooks | None = None) -> IngestReport:
        """What was done with documents that know where they came from (see add); the server encodes them."""
        if self._made.encoder is None:
            raise QueryError(f"{self.url}: this index was made of given vectors; give vectors, not texts")
        return self._ingest(entries, None, hooks)

    def _ingest(self, entries: Iterable[Entry], encode: Encode | None, hooks: IngestHooks | None) -> IngestReport:
        return Ingest(self._caller, hooks or IngestHooks()).run(entries)

    def get(self, id: str) -> Document | None:
        """The document of this id, or None."""
        request = documents.GetRequest(index=self._address.name, ids=[checked_id(id)])
        found = self._caller.call(self._stub.Get, request).documents
        return document_from(found[0]) if found else None

    def delete(self, *, ids: str | Iterable[str] | None = None, filter: Filter | None = None) -> int:
        """How many documents were deleted, in one step: those of the ids that exist, or those the filter matches."""
        request = delete_request(self._address.name, ids, filter, secrets.token_hex(16))
        return int(self._caller.call(self._stub.Delete, request).deleted)

    def update(self, id: str, *, metadata: Mapping[str, Any]) -> None:
        """Nothing; the document has this metadata instead of its old. QueryError when there is no such id."""
        self._caller.call(self._stub.Update, update_request(self._address.name, id, metadata))

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
        """The top_k documents of a query, or of each of several; arguments and results are Index.search's.

        What rerank= wants is done here, not by the server.
        """
        again = parse_rerank(rerank, rerank_on, rerank_depth, top_k, None)
        if again is not None:
            mode = options.get("mode", "dense")
            questions, options["text"] = again.questions(query, mode, options.get("text"))
            return again.reranked(questions, self.search(query, again.depth, *args, **options), mode)
        request, is_single = search_request(self._address.name, query, top_k, *args, **options)
        if not is_single and not num_queries(request):
            return []
        results: list[SearchResult] = [
            result_from(each) for each in self._caller.call(self._stub.Search, request).results
        ]
        return results[0] if is_single else results

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """One vector per text, (q, dim) float32, by the server's encoder; QueryError for an empty text."""
        if not texts:
            return np.empty((0, self.dim or 1), dtype=np.float32)
        request = search.EncodeRequest(index=self._address.name, texts=texts_message(texts))
        return vectors_from(self._caller.call(self._stub.Encode, request).vectors)

    def explain(
        self, query: str | Vector, id: str, scoring: str = "max", *, temperature: float | None = None
    ) -> list[ViewScore]:
        """Every view of a document with its score for the query, best first. QueryError without such an id."""
        request = explain_request(self._address.name, query, id, scoring, temperature)
        return [view_from(view) for view in self._caller.call(self._stub.Explain, request).views]

    def explain_all(
        self, query: str | Vector, ids: str | Iterable[str], scoring: str = "max", *, temperature: float | None = None
    ) -> dict[str, list[ViewScore]]:
        """What explain() gives of each of the documents that exist, by id, in the order of the ids."""
        found: dict[str, list[ViewScore]] = {}
        for request in explain_requests(self._address.name, query, ids, scoring, temperature):
            found |= explanations_from(self._caller.call(self._stub.Explain, request))
        return found

    @property
    def settings(self) -> Mapping[str, Any]:
        """Unsupported: info() says what there is to know."""
        raise self._unsupported("settings")

    @property
    def where(self) -> str:
        """The address."""
        return self.url

    @property
    def next_ordinal(self) -> NoReturn:
        """Unsupported: documents as stored are the server's."""
        raise self._unsupported("next_ordinal")

    def batches(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported: documents as stored are the server's."""
        raise self._unsupported("copying documents as stored")

    def take(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported: documents as stored are the server's."""
        raise self._unsupported("copying documents as stored")

    def remove_untouched(self) -> None:
        """Nothing; the connection is closed: what a server holds is not ours to throw away."""
        self.close()

    @property
    def path(self) -> Path:
        """Unsupported: there is no directory here."""
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
        """Unsupported, as set_lexical()."""
        raise self._unsupported("tune_fusion")

    def set_fusion(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported, as set_lexical()."""
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

    def tune_pruning(self, *args: Any, **options: Any) -> NoReturn:
        """Unsupported."""
        raise self._unsupported("tune_pruning")

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
        return Unsupported(f"{self.url}: {what} works on an index directory only; do it where the server is")
