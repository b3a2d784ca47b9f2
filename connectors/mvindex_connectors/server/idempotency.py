"""Idempotency: a request that is sent again because its response was lost is not carried out twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Generic, TypeVar, cast

import msgspec
import xxhash

from mvindex.errors import QueryError
from mvindex.index import Index, IndexProtocol, store_of
from mvindex.index.protocol import delete_documents, replace_metadata
from mvindex.ingest import Encode, GivenViews, IngestHooks, IngestReport, reusing
from mvindex.ingest.items import item_entries
from mvindex.ingest.pipeline import differs
from mvindex.records import CountCallback, Document, Views
from mvindex.store.catalog import ExistingDocument
from mvindex.store.lexical.tokenizer import tokenizing_long_texts_by
from mvindex.store.protocol import Store
from mvindex.store.rows import content_hash
from mvindex_connectors.server.long_texts import tokenize_in_worker

T = TypeVar("T")

_MAX_RESPONSES = 4096
_MAX_KEY_CHARS = 128


def check_idempotency_key(key: str) -> str:
    """Return the key; QueryError if it is malformed."""
    if len(key) > _MAX_KEY_CHARS or not (key.isascii() and key.isprintable()):
        raise QueryError(
            f"idempotency_key: expected up to {_MAX_KEY_CHARS} printable ASCII characters, got {key[:40]!r}"
        )
    return key


class IdempotencyCache(Generic[T]):
    """The latest responses by idempotency key, in memory."""

    def __init__(self) -> None:
        self._responses: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str) -> T | None:
        """Return the response for the key, or None."""
        return self._responses.get(key)

    def put(self, key: str, response: T) -> None:
        """Store the response for the key."""
        self._responses[key] = response
        while len(self._responses) > _MAX_RESPONSES:
            self._responses.popitem(last=False)


def bound_key(key: str, *content: Any) -> str:
    """Return the key bound to what a request asks for, JSON values: with other content it is another request's key."""
    return f"{key} {xxhash.xxh3_128_hexdigest(msgspec.json.encode(content))}" if key else ""


def mark_of(kind: str, key: str) -> str:
    """Return the mark of a write in the settings of an index; empty without a key."""
    return xxhash.xxh3_64_hexdigest(f"{kind} {key}".encode()) if key else ""


def chunk_mark(key: str, chunk: int, documents: Sequence[Document], views: GivenViews | Encode | None) -> str:
    """Return the mark of a chunk with these documents and given views; empty without a key."""
    if not key:
        return ""
    rows, spans = (views.rows, views.spans) if isinstance(views, GivenViews) else (None, None)
    content = xxhash.xxh3_128()
    for each, own_rows, own_spans in zip(documents, rows or repeat(None), spans or repeat(None), strict=False):
        content.update(msgspec.json.encode([each.id, dict(each.metadata)]))
        content.update(content_hash(each, own_rows, own_spans))
    return mark_of(str(chunk), f"{key} {content.hexdigest()}")


class RepeatableWrites:
    """Writes to an index, each of which is carried out once however often it is sent.

    The index stores the mark of each with it, and so knows it after a kill of the server; one behind another server
    does not. The latest responses are in memory, too. They are looked up in the writing thread: a caller that is gone
    may already repeat what is being done for it. A mark is of a key and of what is written: a key that is used again
    for something else does not keep it from being written.
    """

    def __init__(
        self, index: IndexProtocol, store: Store | None, check_open: Callable[[int], None], document_chars: int
    ) -> None:
        """Take the index, its store unless that is behind another server, and what is called now and then.

        document_chars: of a document at most; another server has its own limit.
        """
        self._index, self._store, self._check_open = index, store, check_open
        self._document_chars = document_chars
        self._chunks: IdempotencyCache[IngestReport] = IdempotencyCache()
        self._changes: IdempotencyCache[int] = IdempotencyCache()

    def deleted(self, key: str) -> int | None:
        """Return how many documents a request has deleted, or None; without a key nothing is known."""
        return self._changes.get(mark_of("delete", key)) if key else None

    def is_updated(self, key: str) -> bool:
        """Return whether a request has replaced the metadata of a document; without a key nothing is known."""
        return bool(key) and self._changes.get(mark_of("update", key)) is not None

    def add(
        self,
        key: str,
        chunk: int,
        documents: Iterable[Document],
        views: GivenViews | Encode | None,
        check: Callable[[Sequence[Document]], None] | None,
    ) -> IngestReport:
        """Store a chunk unless the index has its mark; see IndexService.add(). views: or encode_ahead()."""
        given = list(documents)
        mark = chunk_mark(key, chunk, given, views)
        if (report := self._chunks.get(mark)) is not None:
            return report
        if self._is_done(mark):
            report = IngestReport(unchanged=len(given))
        else:
            if check is not None:
                check(given)
            hooks = IngestHooks(on_progress=self._check_open, mark=mark, max_document_chars=self._document_chars)
            with tokenizing_long_texts_by(tokenize_in_worker):
                report = self._add(given, views, hooks)
        if mark:
            self._chunks.put(mark, report)
        return report

    def delete(
        self, ids: Sequence[str] | Callable[[], Sequence[str]] | None, condition: Any, key: str, everything: bool
    ) -> int:
        """Delete documents unless the request was carried out; see IndexService.delete()."""
        if (deleted := self.deleted(key)) is not None:
            return deleted
        chosen, mark = ids() if callable(ids) else ids, mark_of("delete", key)
        if self._store is None:
            deleted = self._index.delete(ids=chosen, filter=condition, all=everything)
        else:
            deleted = delete_documents(self._store, chosen, condition, everything, mark)
        if key:
            self._changes.put(mark, deleted)
        return deleted

    def update(self, id: str, metadata: Mapping[str, Any], key: str, check: Callable[[], None] | None) -> None:
        """Replace the metadata of a document unless the request did; see IndexService.update()."""
        mark = mark_of("update", key)
        if self.is_updated(key) or self._is_done(mark):
            return
        if check is not None:
            check()
        if self._store is None:
            self._index.update(id, metadata=metadata)
        elif not replace_metadata(self._store, {id: metadata}, mark):
            raise QueryError(f"{self._index.where}: there is no document {id!r}")
        if key:
            self._changes.put(mark, 1)

    def _is_done(self, mark: str) -> bool:
        """Return whether the index has the mark of a write: of a server that was here before."""
        return self._store is not None and self._store.has_mark(mark)

    def encode_ahead(
        self,
        index: Index,
        key: str,
        chunk: int,
        documents: Sequence[Document],
        check: Callable[[Sequence[Document]], None] | None,
    ) -> Encode:
        """Encode what is new of a chunk, in any thread, and return what gives these views to add()."""
        if check is not None:
            check(documents)
        fresh: list[Document] = []
        known: Mapping[str, ExistingDocument] = {}
        store, encode_now = store_of(index), reusing(store_of(index), index.encoder)
        if not self._is_done(chunk_mark(key, chunk, documents, None)):
            known = store.known([each.id for each in documents])
            fresh = [each for each in documents if differs(known.get(each.id), content_hash(each, None))]
        texts = [*fresh, *(Document(each.id, own.text) for each in fresh for own in each.own_view_texts)]
        replaced = known.keys() & {each.id for each in fresh}
        views = encode_now(texts, replaced, self._check_open) if texts else None
        place = {(each.title, each.text): number for number, each in enumerate(texts)}

        def encode(wanted: Sequence[Document], replaced: Collection[str], on_progress: CountCallback) -> Views:
            numbers = [place.get((each.title, each.text), -1) for each in wanted]
            if views is None or -1 in numbers:  # another write changed them meanwhile
                return encode_now(wanted, replaced, on_progress)
            on_progress(len(wanted))
            return views.take(numbers)

        return encode

    def _add(self, documents: list[Document], views: GivenViews | Encode | None, hooks: IngestHooks) -> IngestReport:
        if callable(views):
            return cast(Index, self._index).add_encoded(item_entries(documents), views, hooks)
        if views is None:
            return self._index.add(documents, hooks=hooks)
        return self._index.add_views(documents, views.rows, spans=views.spans, hooks=hooks)
