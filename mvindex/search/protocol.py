"""SearchEngine: the engine slot of an index, which answers checked queries over its store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mvindex.records import Combine, Floats, SearchResult
from mvindex.search.options import SearchOptions
from mvindex.search.queries import TextQueries


class SearchEngine(Protocol):
    """Answers queries over one store. Options come with the index's defaults filled in."""

    def search(self, queries: Floats, options: SearchOptions, texts: Sequence[str] | None = None) -> list[SearchResult]:
        """Return a dense result for each query, (q, d) float32; texts: those that citations are chosen for."""

    def search_text(self, queries: TextQueries, options: SearchOptions) -> list[SearchResult]:
        """Return a lexical result for each text, or a hybrid one where vectors are given."""

    def search_group(
        self, queries: Floats, combine: Combine, options: SearchOptions, texts: Sequence[str] | None
    ) -> SearchResult:
        """Return the dense or hybrid result of one group of query vectors.

        Args:
            queries: (m, d) float32.
            combine: How the m scores of a document make one.
            options: For hybrid, the terms are those of the first text.
            texts: One, or one for each vector, that citations are chosen for; hybrid needs them.

        """

    def copy_bytes(self) -> int | None:
        """Return the bytes of copies of views that exact scans of this process have in memory; None without scans."""

    def mapped_bytes(self) -> int | None:
        """Return the bytes of copies of views that they have mapped from files; None without scans."""

    def close(self) -> None:
        """Let go of the files of the store, which is closed."""
