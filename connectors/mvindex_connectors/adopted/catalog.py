"""The documents of one search of an adopted index, numbered: as they are met, or as its sidecar lists them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn, Protocol

import numpy as np

from mvindex.errors import StoreError, Unsupported
from mvindex.records import ALL_FIELDS, Bools, Ints
from mvindex.search.exact import ViewSource as StoredViews
from mvindex.search.fusion import Fusion, Mode
from mvindex.search.local import LocalSearch
from mvindex.search.parts import Parts
from mvindex.search.plan import Plan
from mvindex.search.terms import LexicalSearch, TermSearch
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.filters import Filter
from mvindex_connectors.adopted.sidecar import Sidecar
from mvindex_connectors.adopted.source import AdoptedDocument, ViewSource


class Documents(Protocol):
    """Documents of one search, by number.

    Attributes:
        num_allowed: How many documents the search allows; more where that is not known.

    """

    num_allowed: int

    def numbers(self, ids: Sequence[str]) -> Ints:
        """Return the number of each document, (m,)."""

    def ids(self, rows: Sequence[int]) -> list[str]:
        """Return the id of each document."""

    def are_allowed(self, rows: Ints) -> Bools:
        """Return whether the search allows each document, (m,)."""

    def few(self, most: int) -> Ints | None:
        """Return the allowed documents; None where they are all, or more than so many."""

    def note(self, rows: Sequence[int], keys: Sequence[int | str]) -> None:
        """Note the first key of each document, which was read."""

    def ordinals(self, rows: Ints) -> Ints:
        """Return what orders documents of one score, (m,)."""

    def check_found(self, ids: Sequence[str], found: Collection[str]) -> None:
        """Raise StoreError unless each document was found."""

    def check(self, documents: Mapping[int, AdoptedDocument]) -> None:
        """Raise StoreError unless the documents, by number, are as they were when they were listed."""

    def terms(self, fusion: Fusion, views: StoredViews) -> TermSearch:
        """Return the search by terms, beside these views."""


class MetDocuments:
    """Documents numbered as they are met, all of them allowed."""

    def __init__(self, source: ViewSource) -> None:
        self._where, self.num_allowed = source.where, source.num_rows
        self._numbers: dict[str, int] = {}
        self._ids: list[str] = []
        self._keys: dict[int, Any] = {}

    def numbers(self, ids: Sequence[str]) -> Ints:
        """Return the number of each document, (m,)."""
        for doc_id in ids:
            if doc_id not in self._numbers:
                self._numbers[doc_id] = len(self._ids)
                self._ids.append(doc_id)
        return np.array([self._numbers[doc_id] for doc_id in ids], dtype=np.int64)

    def ids(self, rows: Sequence[int]) -> list[str]:
        """Return the id of each document."""
        return [self._ids[row] for row in rows]

    def are_allowed(self, rows: Ints) -> Bools:
        """Return True for each document."""
        return np.ones(len(rows), dtype=bool)

    def few(self, most: int) -> None:
        """Return None: all documents are allowed."""

    def note(self, rows: Sequence[int], keys: Sequence[int | str]) -> None:
        """Note the first key of each document."""
        self._keys.update(zip(rows, keys, strict=True))

    def ordinals(self, rows: Ints) -> Ints:
        """Return the rank of each document's first key among these, (m,)."""
        ranks: Ints = np.unique(np.array([self._keys[row] for row in rows.tolist()]), return_inverse=True)[1]
        return ranks

    def check_found(self, ids: Sequence[str], found: Collection[str]) -> None:
        """Raise StoreError unless each document was found."""
        gone = next((doc_id for doc_id in ids if doc_id not in found), None)
        if gone is not None:
            raise StoreError(f"{self._where}: document {gone!r:.80} was removed during the search; try again")

    def check(self, documents: Mapping[int, AdoptedDocument]) -> None:
        """Do nothing: they were not listed before."""

    def terms(self, fusion: Fusion, views: StoredViews) -> NoReturn:
        """Raise Unsupported."""
        raise Unsupported(f"{self._where}: it has no sidecar with terms")


class Catalog:
    """The sidecar of an adopted index: its documents with texts, terms and metadata, as of the last sync."""

    def __init__(self, source: ViewSource, sidecar: Sidecar) -> None:
        self._source, self._sidecar = source, sidecar
        self._search = LocalSearch(sidecar.store)

    @property
    def store(self) -> EmbeddedStore:
        """The documents of the sidecar."""
        return self._sidecar.store

    def is_current(self) -> bool:
        """Return whether the collection has as many rows as at the last sync."""
        return self._sidecar.adopted.num_rows == self._source.count_rows()

    def matching(self, condition: Filter, after: str | None) -> Iterator[str]:
        """Yield the ids of the documents that match, in the order of their ordinals; StoreError as for opened()."""
        self._check_rows()
        return (document.id for document in self.store.scan(condition, after))

    @contextmanager
    def opened(self, plan: Plan) -> Iterator[Documents]:
        """Open the documents that a search allows; StoreError where the sidecar is behind."""
        self._check_rows()
        with self._search.opened(replace(plan, mode=Mode.LEXICAL)) as parts:
            yield _ListedDocuments(parts, self._fail)

    def _check_rows(self) -> None:
        # The collection is searched as it is now, and so is the sidecar.
        self.store.refresh()
        count, before = self._source.count_rows(), self._sidecar.adopted.num_rows
        if before is None:
            self._fail("the last sync did not come to its end")
        if count != before:
            self._fail(f"the collection has {count:,} rows, and had {before:,} then")

    def _fail(self, reason: str) -> NoReturn:
        raise StoreError(
            f"{self._source.where}: its sidecar is behind: {reason}. `mvindex adopt {self.store.where}` updates it; "
            "dense search without a filter does without it"
        )


class _ListedDocuments:
    """Documents as the sidecar lists them, by its rows."""

    def __init__(self, parts: Parts, fail: Any) -> None:
        self._parts, self._fail = parts, fail
        self.num_allowed = parts.num_allowed
        [part] = parts.all
        self._allowed, self._are_all = part.request.allowed, parts.num_allowed == part.snapshot.num_documents
        self._numbers: dict[str, int] = {}

    def numbers(self, ids: Sequence[str]) -> Ints:
        """Return the row of each document, (m,)."""
        unknown = [doc_id for doc_id in dict.fromkeys(ids) if doc_id not in self._numbers]
        self._numbers |= self._parts.rows_of(unknown)
        for doc_id in unknown:
            if doc_id not in self._numbers:
                self._fail(f"it lacks document {doc_id!r:.80}")
        return np.array([self._numbers[doc_id] for doc_id in ids], dtype=np.int64)

    def ids(self, rows: Sequence[int]) -> list[str]:
        """Return the id of each document."""
        found = self._parts.documents(np.array(rows, dtype=np.int64), frozenset())
        self._numbers |= {stored.id: row for row, stored in found.items()}
        return [found[row].id for row in rows]

    def are_allowed(self, rows: Ints) -> Bools:
        """Return whether the filter and the operators of the search allow each document, (m,)."""
        allowed: Bools = self._allowed[rows]
        return allowed

    def few(self, most: int) -> Ints | None:
        """Return the allowed documents; None where they are all, or more than so many."""
        return None if self._are_all or self.num_allowed > most else np.flatnonzero(self._allowed)

    def note(self, rows: Sequence[int], keys: Sequence[int | str]) -> None:
        """Do nothing: documents have ordinals here."""

    def ordinals(self, rows: Ints) -> Ints:
        """Return the ordinal of each document, (m,)."""
        return self._parts.ordinals(rows)

    def check_found(self, ids: Sequence[str], found: Collection[str]) -> None:
        """Raise StoreError unless each document was found."""
        gone = next((doc_id for doc_id in ids if doc_id not in found), None)
        if gone is not None:
            self._fail(f"document {gone!r:.80} is not in the collection any more")

    def check(self, documents: Mapping[int, AdoptedDocument]) -> None:
        """Raise StoreError unless the documents, by row, are as they are listed."""
        listed = self._parts.documents(np.array(list(documents), dtype=np.int64), ALL_FIELDS) if documents else {}
        for row, document in documents.items():
            if listed[row] != document.whole():
                self._fail(f"document {document.id!r:.80} has changed")

    def terms(self, fusion: Fusion, views: StoredViews) -> TermSearch:
        """Return the search by terms, beside these views."""
        search = LexicalSearch(self._parts, fusion)
        search.views = views
        return search
