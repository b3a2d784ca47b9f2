"""FilterMatcher: applies a filter to documents at hand, by the SQL that finds stored ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from mvindex.records import dump_metadata
from mvindex.store import dates
from mvindex.store.filter_sql import to_sql
from mvindex.store.filters import Filter, parse_filter


class FilterMatcher:
    """Decides whether documents match a filter; it is for one thread at a time.

    SQLite evaluates the same SQL as for stored documents, so that both always agree.
    """

    def __init__(self, condition: Filter) -> None:
        """Read the filter; QueryError for one that is malformed."""
        sql = to_sql(parse_filter(condition))
        self._query = f"SELECT {sql.text} FROM (SELECT ? AS id) AS d, (SELECT ? AS json) AS m"
        self._parameters = sql.parameters

    def matching(self, documents: Mapping[str, Mapping[str, Any]]) -> set[str]:
        """Return the ids that match, of documents given as metadata by id."""
        return self.matching_stored({doc_id: dump_metadata(own, doc_id) for doc_id, own in documents.items()})

    def matching_stored(self, documents: Mapping[str, str]) -> set[str]:
        """Return the ids that match, of documents given as metadata in JSON by id."""
        with closing(sqlite3.connect(":memory:")) as connection:
            dates.register(connection)
            return {doc_id for doc_id, stored in documents.items() if self._holds(connection, doc_id, stored)}

    def _holds(self, connection: sqlite3.Connection, doc_id: str, stored: str) -> bool:
        return bool(connection.execute(self._query, (*self._parameters, doc_id, stored)).fetchone()[0])
