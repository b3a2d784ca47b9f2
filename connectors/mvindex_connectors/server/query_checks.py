"""Limits of the queries that a server takes: how many, how long, and how many documents for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mvindex.errors import LimitExceeded, QueryError
from mvindex.index import IndexProtocol
from mvindex.search.fusion import Mode
from mvindex.search.request import Queries, SearchRequest, as_vectors, check_query_text
from mvindex_connectors.server.config import Limits
from mvindex_connectors.server.response_budget import TooLarge


class QueryChecks:
    """The checks of an index's queries before they are encoded or searched."""

    def __init__(self, limits: Limits, index: IndexProtocol) -> None:
        self._limits, self._index = limits, index

    def hits(self, num_queries: int, request: SearchRequest) -> None:
        """Raise LimitExceeded for more documents than are searched for or returned at once."""
        top_k, depth = request.top_k, request.depth
        if request.diversity is not None and depth > self._limits.top_k >= top_k:
            raise LimitExceeded(
                f"diversity: expected a server that searches for {depth} documents, which it chooses from, got one for "
                f"{self._limits.top_k} (--max-top-k)"
            )
        if depth > self._limits.top_k >= top_k:
            raise LimitExceeded(
                f"top_k: expected a page within the first {self._limits.top_k} documents on this server (--max-top-k), "
                f"got top_k {top_k} behind {depth - top_k} others"
            )
        if top_k > self._limits.top_k:
            raise LimitExceeded(
                f"top_k: expected at most {self._limits.top_k} on this server (--max-top-k), got {top_k}"
            )
        if (hits := num_queries * depth) > self._limits.hits:
            raise LimitExceeded(
                f"{num_queries} queries with top_k {depth} request {hits} documents at once; this server returns at "
                f"most {self._limits.hits} (--max-hits). Send fewer queries at a time"
            )

    def number(self, count: int) -> None:
        """Raise LimitExceeded for more queries than are searched at once."""
        if count > self._limits.queries:
            raise LimitExceeded(
                f"{count} queries in one request; this server takes {self._limits.queries} (--max-queries). "
                "Send several requests"
            )

    def text(self, text: str, number: int = 1, count: int = 1) -> None:
        """Check the number-th of count texts; raise QueryError for an empty one, TooLarge for one of too many terms."""
        if len(text) > self._limits.query_chars:
            # Each term has a character, so that this bounds their number.
            raise TooLarge(
                f"{'the query' if count == 1 else f'query {number}'}: expected at most {self._limits.query_chars:,} "
                f"characters (--max-query-chars), got {len(text):,}. Search with a part of the text"
            )
        check_query_text(text, number, count)

    def texts(self, texts: Sequence[str]) -> None:
        """Check texts; see number() and text()."""
        self.number(len(texts))
        for number, text in enumerate(texts, start=1):
            self.text(text, number, len(texts))

    def queries(self, queries: Queries, mode: Mode) -> Queries:
        """Return the queries of a message, checked, with a text for each row where there are any."""
        self.number(len(queries.rows))
        rows = as_vectors(queries.vectors, self._index.dim) if queries.are_encoded else queries.rows
        self.texts(queries.unencoded)
        texts = queries.texts
        if texts is not None:
            self.texts(texts)
        if queries.combine is not None:
            if mode is Mode.LEXICAL:
                raise QueryError("mode='lexical' reads no vectors of a query group; expected mode='dense' or 'hybrid'")
            if texts is not None and len(texts) != 1:
                raise QueryError(f"text: expected one text for a query group, got {len(texts)}")
            texts = None if texts is None else list(texts) * len(rows)
        elif mode is Mode.LEXICAL and texts is not None:
            rows = texts
        if texts is None and not queries.are_encoded:
            texts = queries.unencoded
        if texts is None and mode in (Mode.LEXICAL, Mode.HYBRID):
            raise QueryError(f"mode={mode.value!r} searches texts, got vectors; give the text, or both: text=...")
        if texts is not None and len(texts) != len(rows):
            raise QueryError(f"text: expected a text for each of {len(rows)} query vectors, got {len(texts)}")
        return replace(queries, rows=rows, texts=texts)
