"""Limits of the queries that a server takes: how many, how long, and how many documents for them."""

from __future__ import annotations

from collections.abc import Sequence

from mvindex.errors import LimitExceeded, QueryError
from mvindex.index import IndexProtocol
from mvindex.records import Floats
from mvindex.search.fusion import Mode
from mvindex.search.queries import as_vectors, check_query_text, query_texts
from mvindex_connectors.server.config import Limits
from mvindex_connectors.server.response_budget import TooLarge


class QueryChecks:
    """The checks of an index's queries before they are encoded or searched."""

    def __init__(self, limits: Limits, index: IndexProtocol) -> None:
        self._limits, self._index = limits, index

    def hits(self, num_queries: int, top_k: int) -> None:
        """Raise LimitExceeded for more documents than are returned at once."""
        if top_k > self._limits.top_k:
            raise LimitExceeded(
                f"top_k: expected at most {self._limits.top_k} on this server (--max-top-k), got {top_k}"
            )
        if (hits := num_queries * top_k) > self._limits.hits:
            raise LimitExceeded(
                f"{num_queries} queries with top_k {top_k} request {hits} documents at once; this server returns at "
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

    def queries(self, queries: Sequence[str] | Floats) -> list[str] | Floats:
        """Return texts, or vectors (q, d), checked."""
        self.number(len(queries))
        if not isinstance(queries, Sequence):
            return as_vectors(queries, self._index.dim)
        for number, text in enumerate(queries, start=1):
            self.text(text, number, len(queries))
        return list(queries)

    def group_text(self, text: Sequence[str] | None) -> list[str] | None:
        """Return the text of a query group in a list, checked, or None."""
        if text is not None and len(text) != 1:
            raise QueryError(f"text: expected one text for a query group, got {len(text)}")
        for one in text or ():
            self.text(one)
        return None if text is None else list(text)

    def texts(self, queries: Sequence[str] | Floats, text: Sequence[str] | None, mode: Mode) -> list[str]:
        """Return the texts for terms and citations, one for each query, checked."""
        if text is not None:
            self.number(len(text))
        texts, _ = query_texts(queries, text, mode)
        for number, each in enumerate(texts, start=1):
            self.text(each, number, len(texts))
        if mode is not Mode.LEXICAL and len(texts) != len(queries):
            raise QueryError(f"text: expected a text for each of {len(queries)} query vectors, got {len(texts)}")
        return texts
