"""SearchEngine: the engine slot of an index, which answers checked queries over its store."""

from __future__ import annotations

from typing import Protocol

from mvindex.records import SearchResult
from mvindex.search.plan import Plan
from mvindex.search.request import Queries


class SearchEngine(Protocol):
    """Answers queries over one store."""

    def search(self, queries: Queries, plan: Plan) -> list[SearchResult]:
        """Return a result for each query; they have vectors where the plan reads views."""

    def copy_bytes(self) -> int | None:
        """Return the bytes of copies of views that exact scans of this process have in memory; None without scans."""

    def mapped_bytes(self) -> int | None:
        """Return the bytes of copies of views that they have mapped from files; None without scans."""

    def close(self) -> None:
        """Let go of the files of the store, which is closed."""
