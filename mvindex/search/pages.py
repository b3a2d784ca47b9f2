"""Pages of a result by a cursor: it remembers which documents were shown, so that none comes twice.

A cursor is a text that a caller takes from a result to the next search: nothing of it is kept in an index or a server.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from mvindex.errors import CursorExpired, QueryError
from mvindex.records import SearchResult
from mvindex.store.filters import operand_as_json

if TYPE_CHECKING:
    from mvindex.search.request import SearchRequest

# A cursor remembers so many documents: its text is then 11 kB long.
MAX_SHOWN = 1000
_VERSION = b"\x01"
_HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place where the next page of a query begins.

    Attributes:
        index, query: Hashes of the index and of the query with its options; empty before the first page.
        num_shown: Number of documents shown.
        shown: Hashes of their ids, one after the other; empty where there are too many.

    """

    index: bytes = b""
    query: bytes = b""
    num_shown: int = 0
    shown: bytes = b""

    @classmethod
    def parse(cls, text: object) -> Cursor:
        """Return the cursor of a text that a result has as `next`, or of "" for the first page.

        Raises:
            CursorExpired: When more documents were shown than a cursor remembers.
            QueryError: For another text.

        """
        if text == "":
            return cls()
        try:
            packed = base64.urlsafe_b64decode(text.encode()) if isinstance(text, str) else b""
        except (binascii.Error, UnicodeEncodeError):
            packed = b""
        head = 1 + 2 * _HASH_BYTES
        index, query, count = packed[1:9], packed[9:head], packed[head : head + 4]
        shown = packed[head + 4 :]
        cursor = cls(index, query, int.from_bytes(count, "big"), shown)
        is_whole = len(count) == 4 and len(shown) in (0, cursor.num_shown * _HASH_BYTES)
        if packed[:1] != _VERSION or not is_whole:
            raise QueryError(f'cursor: expected "" or the next of a result, got {text!r:.60}')
        if len(shown) < cursor.num_shown * _HASH_BYTES:
            raise CursorExpired(
                f"cursor: {cursor.num_shown:,} documents were shown, and a cursor remembers {MAX_SHOWN:,}; go on with "
                f"offset={cursor.num_shown}"
            )
        return cursor

    @property
    def text(self) -> str:
        """The cursor as a text."""
        if not self.index:
            return ""
        count = self.num_shown.to_bytes(4, "big")
        return base64.urlsafe_b64encode(_VERSION + self.index + self.query + count + self.shown).decode()

    def pages(self, results: Sequence[SearchResult], request: SearchRequest, index: str) -> list[SearchResult]:
        """Return the page of each result, with the cursor of the page after it.

        Args:
            results: For each query of the request the best documents, as many more as were shown.
            request: The request that has this cursor.
            index: What the index is known by.

        Raises:
            CursorExpired: When the cursor is that of another index or query.
            QueryError: For several queries.

        """
        named, keys = _hashed([index]), _query_keys(request)
        if self.index and len(keys) != 1:
            raise QueryError(f"cursor: expected the one query that it belongs to, got {len(keys)} queries")
        if self.index and (self.index, [self.query]) != (named, keys):
            other = "another index" if self.index != named else "another query, or of other options"
            raise CursorExpired(f'cursor: this one is of {other}; begin again with cursor=""')
        return [self._page(*each, named, request.top_k) for each in zip(results, keys, strict=True)]

    def _page(self, result: SearchResult, query: bytes, index: bytes, top_k: int) -> SearchResult:
        seen = {self.shown[at : at + _HASH_BYTES] for at in range(0, len(self.shown), _HASH_BYTES)}
        # One call for each: pages far down look at many documents.
        hashes = [blake2b(hit.id.encode(), digest_size=_HASH_BYTES).digest() for hit in result.hits]
        new = [place for place, hashed in enumerate(hashes) if hashed not in seen][:top_k]
        count = self.num_shown + len(new)
        shown = self.shown + b"".join([hashes[place] for place in new]) if count <= MAX_SHOWN else b""
        is_last = len(new) < top_k
        return replace(
            result,
            hits=tuple(result.hits[place] for place in new),
            short_by=min(result.short_by, top_k - len(new)),
            next=None if is_last else Cursor(index, query, count, shown).text,
        )


def _query_keys(request: SearchRequest) -> list[bytes]:
    """Return a hash of each query, its vector and its text, with the options that its ranking depends on."""
    options = json.dumps(
        [
            request.filter,
            request.aggregate.value,
            request.temperature,
            request.candidates,
            request.exact,
            request.mode.value,
            None if request.method is None else request.method.value,
            request.weights,
            request.operators,
        ],
        sort_keys=True,
        default=operand_as_json,
    )
    keys = []
    for queries in request.queries:
        texts = queries.texts or queries.unencoded or [""] * len(queries.rows)
        # What an encoder made of the texts may differ in its last bits from machine to machine.
        is_given = queries.are_encoded and not queries.are_of_texts
        vectors = [np.asarray(row, dtype="<f4").tobytes() if is_given else b"" for row in queries.rows]
        if queries.combine is not None:
            keys.append(_hashed([options, queries.combine.value, *texts, *vectors]))
        else:
            keys += [_hashed([options, *each]) for each in zip(texts, vectors, strict=True)]
    return keys


def _hashed(parts: Iterable[str | bytes]) -> bytes:
    """Return a hash of texts and bytes."""
    digest = blake2b(digest_size=_HASH_BYTES)
    for part in parts:
        packed = part if isinstance(part, bytes) else part.encode()
        digest.update(len(packed).to_bytes(8, "big") + packed)
    return digest.digest()
