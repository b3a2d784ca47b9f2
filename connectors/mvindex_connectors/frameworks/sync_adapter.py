"""An index in this process, or a client that blocks, with the methods that frameworks' work awaits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

import mvindex
from mvindex.index.results import IndexInfo, document_of
from mvindex.records import Document, Floats, Hit, SearchResult, dump_metadata
from mvindex.scoring.aggregate import view_scores
from mvindex.store.filters import Filter
from mvindex_connectors.frameworks.citations import scores_by_hit

if TYPE_CHECKING:
    from mvindex_connectors.frameworks.connection import Place

_NOTHING = SearchResult(hits=(), exact=True, short_by=0, rounds=0)
# Documents read at once.
_READ = 1000


class Blocking:
    """An index with the methods of Reach, for one piece of work; none of them waits: finished() can run them."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._index: mvindex.Index | None = None

    def _opened(self) -> mvindex.Index | None:
        """The index, at the state that was the latest when this work first looked."""
        if self._index is None:
            self._index = self._place.opened()
        return self._index

    async def search(self, query: Any, *args: Any, **options: Any) -> Any:
        """See Index.search(); nothing where there is no index yet."""
        index = self._opened()
        return _NOTHING if index is None else index.search(query, *args, **options)

    async def encode_queries(self, texts: Sequence[str]) -> Floats | None:
        """See Index.encode_queries(); None where there is no index yet."""
        index = self._opened()
        return None if index is None else index.encode_queries(texts)

    async def get_all(self, ids: Sequence[str]) -> list[Document]:
        """The documents of the ids that exist, in their order."""
        index = self._opened()
        found = [] if index is None else [index.get(doc_id) for doc_id in ids]
        return [document for document in found if document is not None]

    async def listed(self, condition: Filter | None = None) -> AsyncIterator[Document]:
        """The documents that match; where the index can only list all, others as well."""
        index = self._opened()
        if index is None or type(index) is not mvindex.Index or not condition:
            for document in index or ():
                yield document
            return
        snapshot = index.store.snapshot
        with index.store.reading(snapshot) as reader:
            rows = np.flatnonzero(reader.matching(condition))
            for begin in range(0, len(rows), _READ):
                for stored in reader.documents(rows[begin : begin + _READ].tolist()).values():
                    yield document_of(stored)

    async def count(self) -> int:
        """How many documents there are."""
        index = self._opened()
        return 0 if index is None else len(index)

    async def info(self) -> IndexInfo | None:
        """See Index.info(); None where there is no index yet."""
        index = self._opened()
        return None if index is None else index.info()

    async def add(self, items: Sequence[Document]) -> Any:
        """See Index.add()."""
        with self._place.writing:
            return self._place.made(None).add(items)

    async def add_views(self, items: Sequence[Document], views: Sequence[Any]) -> Any:
        """See Index.add_views()."""
        with self._place.writing:
            return self._place.made(np.shape(views[0])[-1]).add_views(items, views)

    async def delete(self, *, ids: Iterable[str] | None = None, filter: Filter | None = None) -> int:
        """See Index.delete()."""
        index = self._opened()
        with self._place.writing:
            return 0 if index is None else index.delete(ids=ids, filter=filter)

    async def update_all(self, metadata: Mapping[str, Mapping[str, Any]]) -> int:
        """How many of the ids exist; these have this metadata now, in one step in a directory without shards."""
        index = self._opened()
        with self._place.writing, ExitStack() as stack:
            if index is None or type(index) is not mvindex.Index:
                return sum(_is_updated(index, doc_id, each) for doc_id, each in metadata.items())
            stack.enter_context(index.store.writing())
            known = index.store.known(list(metadata))
            index.store.set_metadata(
                {row.doc_row: dump_metadata(metadata[doc_id], doc_id) for doc_id, row in known.items()}
            )
            return len(known)

    async def scores_of_views(self, vector: Floats, hits: Sequence[Hit]) -> list[list[dict[str, Any]]]:
        """Of each hit every view with its score, best first; nothing of one that is gone meanwhile."""
        found = self._stored_views(hits)
        if found is None:
            index = self._opened()
            ids = [hit.id for hit in hits]
            return scores_by_hit({} if index is None else index.explain_all(vector, ids), hits)
        rows, starts = found
        scores = view_scores(rows, vector)
        return [_best_first(scores[begin:end]) for begin, end in zip(starts, starts[1:], strict=False)]

    def winning_views(self, hits: Sequence[Hit]) -> Floats | None:
        """The view of each hit that won, (n, d), as stored; None where views lie in no directory of ours."""
        found = self._stored_views(hits)
        if found is None:
            return None
        rows, starts = found
        chosen = starts[:-1] + np.array([hit.slot for hit in hits])
        # Beyond a document's views where it was replaced since the search.
        return rows[chosen].astype(np.float32) if (chosen < starts[1:]).all() else None

    def _stored_views(self, hits: Sequence[Hit]) -> tuple[Any, Any] | None:
        """All views of the hits and where those of each begin; None where they cannot be read, or not of all."""
        index = self._opened()
        if type(index) is not mvindex.Index or not hits:
            return None
        snapshot, known = index.store.snapshot, index.store.known([hit.id for hit in hits])
        rows = [known[hit.id].doc_row for hit in hits if hit.id in known]
        # Documents that another process wrote meanwhile lie beyond the snapshot.
        is_whole = len(rows) == len(hits) and max(rows) < snapshot.num_rows
        return snapshot.views.fetch(np.array(rows)) if is_whole else None


def _is_updated(index: mvindex.Index | None, doc_id: str, metadata: Mapping[str, Any]) -> bool:
    if index is None or doc_id not in index:
        return False
    index.update(doc_id, metadata=metadata)
    return True


def _best_first(scores: Floats) -> list[dict[str, Any]]:
    order = np.argsort(-scores, kind="stable").tolist()
    return [{"view": slot, "score": float(scores[slot])} for slot in order]
