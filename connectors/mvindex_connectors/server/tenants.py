"""Tenants: what exists of a server for a caller whose token is bound to indexes, or to a filter."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias, TypeVar

from mvindex.errors import LimitExceeded, NoSuchIndex, NotPermitted, QueryError, Unsupported
from mvindex.ingest import GivenViews, IngestReport
from mvindex.records import Document, Floats, IndexInfo, SearchResult, ViewScore, sliced
from mvindex.search.request import ScoringName, SearchRequest
from mvindex.search.terms import TermCounts
from mvindex.store.filter_sql import FilterMatcher
from mvindex.store.filters import Filter, check_deletion, operand_as_json
from mvindex_connectors.remote.convert import MAX_EXPLAINED, MAX_IDS
from mvindex_connectors.server.admission import CallContext
from mvindex_connectors.server.index_service import IndexService
from mvindex_connectors.server.limits import Page, ResponseMeter
from mvindex_connectors.server.tokens import Caller

T = TypeVar("T")

# Documents whose metadata are compared with the filter at once.
_COMPARED = 64


class TenantIndex:
    """An index for which only the documents that match a filter exist.

    It has the operations of IndexService that calls need, each of them written here, so that one that is new there is
    an error here and no leak.
    """

    def __init__(self, service: IndexService, condition: Filter) -> None:
        self._service, self._filter = service, condition
        self._matcher = FilterMatcher(condition)

    @property
    def name(self) -> str:
        """The name of the index."""
        return self._service.name

    @property
    def is_read_only(self) -> bool:
        """Whether writes are refused."""
        return self._service.is_read_only

    @property
    def local_path(self) -> str:
        """The path of the index on the server's disk; empty if it has none."""
        return self._service.local_path

    def check_number(self, count: int) -> None:
        """Check how many queries there are; LimitExceeded for more than are searched at once."""
        self._service.check_number(count)

    async def convert(self, function: Callable[[], T], num_items: int, meter: ResponseMeter) -> T:
        """Run the function, which converts so many items; see IndexService.convert()."""
        return await self._service.convert(function, num_items, meter)

    async def encode(self, texts: Sequence[str]) -> Floats:
        """Encode texts as queries, (q, d)."""
        return await self._service.encode(texts)

    async def views(self, ids: Sequence[str], meter: ResponseMeter) -> dict[str, Floats]:
        """Raise Unsupported: views are returned to a search of shards."""
        self._refuse_shard()

    async def search(
        self,
        request: SearchRequest,
        meter: ResponseMeter,
        convert: Callable[[list[SearchResult]], list[Any]] | None = None,
    ) -> list[Any]:
        """Return a result for each query, of documents that match both filters; see IndexService.search()."""
        await self._check_like(request)
        found = await self._service.search(self._own_request(request), meter, convert)
        # Others may have replaced some meanwhile.
        await self._check_like(request)
        return found

    async def explain_all(
        self,
        query: str | Floats,
        ids: Sequence[str],
        scoring: ScoringName,
        temperature: float | None,
        meter: ResponseMeter,
    ) -> dict[str, list[ViewScore]]:
        """Score every view of the documents that exist, by id, in the order of the ids."""
        _check_count(ids, MAX_EXPLAINED)
        own = await self._service.read(lambda: self._own(ids))
        found = await self._service.explain_all(query, own, scoring, temperature, meter)
        # Others may have replaced some meanwhile.
        still = set(await self._service.read(lambda: self._own(own)))
        return {doc_id: views for doc_id, views in found.items() if doc_id in still}

    async def get(self, ids: Sequence[str], meter: ResponseMeter) -> list[Document]:
        """Return the documents of the ids that exist, in the order of the ids."""
        _check_count(ids, MAX_IDS)
        # Only these are counted: the size of others must not show.
        own = await self._service.read(lambda: self._own(ids))
        found = await self._service.get(own, meter)
        return await self._service.read(lambda: self._matching(found))

    async def has(self, doc_id: str) -> bool:
        """Return whether there is a document of this id."""
        return bool(await self._service.read(lambda: self._own([doc_id])))

    async def page(self, condition: Filter | None, limit: int, after: str | None) -> Page:
        """Return the next documents that match both filters; see Index.scan()."""
        await self._check_after(after)
        return await self._service.page(self._within(condition), limit, after)

    async def scan(
        self, condition: Filter | None, limit: int | None, after: str | int | None, *, with_ordinals: bool = False
    ) -> AsyncIterator[list[tuple[int, Document]]]:
        """Yield documents that match both filters in lists; Unsupported with ordinals, which count others too."""
        if with_ordinals or isinstance(after, int):
            self._refuse_shard()
        await self._check_after(after)
        async for some in self._service.scan(self._within(condition), limit, after):
            yield some

    async def info(self) -> IndexInfo:
        """Describe the index: settings as they are, numbers of what matches the filter, and no sizes."""
        documents, views = await self._service.count_within(self._filter)
        return replace(
            await self._service.info(),
            documents=documents,
            views=views,
            num_deleted=0,
            fresh_documents=0,
            size_bytes=0,
            copy_bytes=None,
            mapped_bytes=None,
            copies_file_bytes=None,
            text_bytes=None,
            term_bytes=None,
        )

    async def term_counts(self, texts: Sequence[str]) -> tuple[TermCounts, IndexInfo]:
        """Raise Unsupported: such counts are of all documents."""
        self._refuse_shard()

    async def add(self, key: str, chunk: int, documents: Iterable[Document], views: GivenViews | None) -> IngestReport:
        """Store a chunk durably; NotPermitted for a document that the filter leaves out, or another's id."""
        return await self._service.add(self._own_key(key), chunk, documents, views, self._check_documents)

    async def delete(self, ids: Sequence[str] | None, condition: Any, key: str, everything: bool = False) -> int:
        """Delete documents that match the filter and return how many; a repeated request deletes nothing more."""
        check_deletion(ids, condition, everything)
        if ids is None:
            return await self._service.delete(None, self._within(condition), self._own_key(key))
        return await self._service.delete(lambda: self._own(ids), None, self._own_key(key))

    async def update(self, id: str, metadata: Mapping[str, Any], key: str) -> None:
        """Replace the metadata of a document; NotPermitted for such that the filter leaves out."""
        self._check_match({id: metadata})

        def check() -> None:
            if not self._own([id]):
                raise QueryError(f"{self.name}: there is no document {id!r}")

        await self._service.update(id, metadata, self._own_key(key), check)

    def _within(self, condition: Filter | None) -> Filter:
        """Return the filter of both."""
        return self._filter if condition is None else {"and": [self._filter, condition]}

    def _own_request(self, request: SearchRequest) -> SearchRequest:
        """Return the request for documents that match both filters."""
        if request.shard is not None:
            self._refuse_shard()
        return replace(request, filter=self._within(request.filter))

    async def _check_like(self, request: SearchRequest) -> None:
        """Check the documents that stand for a query, in the same words for one of another and for one that is none."""
        ids = () if request.like is None else request.like.ids
        own = await self._service.read(lambda: self._own(ids)) if ids else []
        for doc_id in ids:
            if doc_id not in own:
                raise QueryError(f"{self.name}: there is no document {doc_id!r}; expected the ids of documents")

    def _own_key(self, key: str) -> str:
        """Return an idempotency key that no caller with another filter can send."""
        return f"{key}\n{json.dumps(self._filter, sort_keys=True, default=operand_as_json)}" if key else ""

    def _matching(self, documents: Iterable[Document]) -> list[Document]:
        given = list(documents)
        own = self._matcher.matching({document.id: document.metadata for document in given})
        return [document for document in given if document.id in own]

    def _own(self, ids: Sequence[str]) -> list[str]:
        """Return those of the ids that exist, in their order; no text is read: the length of another's would show."""
        pieces = sliced(ids, _COMPARED)
        own = set[str]().union(*(self._matcher.matching_stored(self._service.metadata_of(piece)) for piece in pieces))
        return [doc_id for doc_id in ids if doc_id in own]

    async def _check_after(self, after: str | None) -> None:
        """Check the id at which a listing goes on, in the same words for one of another and for one that is none."""
        if after is not None and not await self.has(after):
            raise QueryError(f"{self.name}: after={after!r}: expected the id of a document, got one that is not there")

    def _check_documents(self, documents: Sequence[Document]) -> None:
        """Check documents to be stored. The filter comes first: one on ids then keeps secret which ids are taken."""
        self._check_match({document.id: document.metadata for document in documents})
        ids = [document.id for document in documents]
        own = set(self._own(ids))
        for piece in sliced(ids, _COMPARED):
            for taken in self._service.metadata_of(piece):
                if taken not in own:
                    raise NotPermitted(f"document {taken!r}: expected an id that no other tenant uses, got one in use")

    def _check_match(self, metadata: Mapping[str, Mapping[str, Any]]) -> None:
        """Check metadata, by id, of documents to be written."""
        if others := metadata.keys() - self._matcher.matching(metadata):
            raise NotPermitted(
                f"document {min(others)!r}: expected one that the filter of this token matches, "
                f"{json.dumps(self._filter, default=operand_as_json)}, got another"
            )

    def _refuse_shard(self) -> NoReturn:
        raise Unsupported(
            f"{self.name}: a token with a filter cannot search this index as one shard of several, which shows counts "
            "of all documents. Serve the shards together, from their directory, and give the token there"
        )


ServedIndex: TypeAlias = IndexService | TenantIndex


def find_index(services: Mapping[str, IndexService], name: str, caller: Caller) -> ServedIndex:
    """Return the index of that name as it exists for the caller.

    Raises:
        NoSuchIndex: There is none; lists the names that there are.
        Unsupported: The token has a filter, and the index is not in a directory: others may write past the checks.

    """
    if name not in services or not caller.may_see(name):
        names = ", ".join(visible_names(services, caller)) or "none"
        raise NoSuchIndex(f"index: expected one of {names}, got {name!r:.120}")
    if caller.filter is None:
        return services[name]
    if not services[name].is_in_directory:
        raise Unsupported(
            f"{name}: a token with filter= needs an index in a directory of this server, got one in Milvus or behind "
            "another server. Copy it by `mvindex migrate`, or bind the token to other indexes by indexes="
        )
    return TenantIndex(services[name], caller.filter)


def use_index(services: Mapping[str, IndexService], call: CallContext) -> ServedIndex:
    """Return the index that a call names as it exists for its caller, in use until the call ends."""
    found = find_index(services, call.index, call.caller)
    if call.on_end is None:
        service = services[call.index]
        service.enter()
        call.on_end = service.leave
    return found


def visible_names(services: Mapping[str, IndexService], caller: Caller) -> list[str]:
    """Return the names of the indexes that exist for the caller."""
    return [name for name in services if caller.may_see(name)]


def _check_count(ids: Sequence[str], most: int) -> None:
    if len(ids) > most:
        raise LimitExceeded(f"{len(ids)} ids in one request; this server takes {most:,}. Send several requests")
