"""Idempotency: a request that is sent again because its response was lost is not carried out twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import xxhash

from mvindex.errors import QueryError
from mvindex.index import IndexProtocol
from mvindex.ingest import IngestHooks, IngestReport
from mvindex.records import Document, Floats

T = TypeVar("T")

# The key in an index's settings that lists the marks of stored chunks, the latest last.
SETTING = "served_chunks"
_MAX_MARKS = 128
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


def chunk_mark(key: str, chunk: int) -> str:
    """Return the mark of a chunk of a run in an index's settings."""
    return xxhash.xxh3_64_hexdigest(f"{chunk} {key}".encode())


def is_chunk_stored(settings: Mapping[str, Any], mark: str) -> bool:
    """Return whether the index has stored the chunk."""
    return mark in settings.get(SETTING, ())


def settings_with_mark(settings: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """Return settings that list the chunk as stored, to be saved in its transaction."""
    return {SETTING: [*settings.get(SETTING, ()), mark][-_MAX_MARKS:]}


class RepeatableWrites:
    """Additions and deletions of an index, each of which is carried out once however often it is sent.

    Callers look up a response in the event loop, and write in the writing thread: a caller that is gone may already
    repeat what is being done for it.
    """

    def __init__(
        self, index: IndexProtocol, settings: Callable[[], Mapping[str, Any]], check_open: Callable[[int], None]
    ) -> None:
        """Take what returns the settings of the index, with marks of stored chunks, and what is called now and then."""
        self._index, self._settings, self._check_open = index, settings, check_open
        self._chunks: IdempotencyCache[IngestReport] = IdempotencyCache()
        self._deletions: IdempotencyCache[int] = IdempotencyCache()

    def report(self, key: str, chunk: int) -> IngestReport | None:
        """Return the report of a chunk that was stored, or None; without a key nothing is known."""
        return self._chunks.get(f"{chunk} {key}") if key else None

    def deleted(self, key: str) -> int | None:
        """Return how many documents a request has deleted, or None; without a key nothing is known."""
        return self._deletions.get(key) if key else None

    def add(
        self,
        key: str,
        chunk: int,
        documents: Iterable[Document],
        views: Sequence[Floats] | None,
        check: Callable[[Sequence[Document]], None] | None,
    ) -> IngestReport:
        """Store a chunk unless the index has its mark; see IndexService.add()."""
        if (report := self.report(key, chunk)) is not None:
            return report
        given = list(documents)
        mark = chunk_mark(key, chunk) if key else ""
        if mark and is_chunk_stored(self._settings(), mark):
            report = IngestReport(unchanged=len(given))
        else:
            if check is not None:
                check(given)
            report = self._store(given, views, mark)
        if key:
            self._chunks.put(f"{chunk} {key}", report)
        return report

    def delete(
        self, ids: Sequence[str] | Callable[[], Sequence[str]] | None, condition: Any, key: str, everything: bool
    ) -> int:
        """Delete documents unless the request was carried out; see IndexService.delete()."""
        if (deleted := self.deleted(key)) is not None:
            return deleted
        chosen = ids() if callable(ids) else ids
        deleted = self._index.delete(ids=chosen, filter=condition, all=everything)
        if key:
            self._deletions.put(key, deleted)
        return deleted

    def _store(self, documents: list[Document], views: Sequence[Floats] | None, mark: str) -> IngestReport:
        hooks = IngestHooks(
            on_progress=self._check_open, note=lambda _: settings_with_mark(self._settings(), mark) if mark else {}
        )
        if views is None:
            return self._index.add(documents, hooks=hooks)
        return self._index.add_views(documents, list(views), hooks=hooks)
