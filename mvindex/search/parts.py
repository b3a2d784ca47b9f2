"""Parts: the stores of one search, opened, as one: rows are numbered through all of them.

Every view of a document is in one store, so that a document's score is the same there as anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from mvindex.kernels.score import Scoring
from mvindex.records import Field, Floats, Ints
from mvindex.search.exact import StoredViews
from mvindex.search.ranking import Engines, Pairs, Request, ScoredPairs, score_pairs, scores_of_views
from mvindex.store.reader import SnapshotReader, StoredDocument
from mvindex.store.snapshot import Snapshot

_NO_SCORES = np.empty(0, dtype=np.float32)


class Part(NamedTuple):
    """One store of a search.

    Attributes:
        snapshot: What is searched.
        engines: Those that rank views.
        request: The same for all parts but for what is allowed.
        reader: The reader of documents and terms.
        errors: A context that names the store in errors.

    """

    snapshot: Snapshot
    engines: Engines
    request: Request
    reader: SnapshotReader
    errors: Callable[[], AbstractContextManager[None]] = nullcontext


class Parts:
    """All parts of a search: the ViewSource of their documents.

    Attributes:
        all: Each of them, in order.
        firsts: (parts,) the number of the first row of each part.
        num_rows: Of all parts together.
        num_allowed: The number of allowed documents.

    """

    scored_together = StoredViews.scored_together

    def __init__(self, parts: Sequence[Part]) -> None:
        self.all = parts
        # An empty store has a row, which no document is in: no two stores begin with the same row.
        sizes = [max(part.snapshot.num_rows, 1) for part in parts]
        self.firsts: Ints = np.array([0, *accumulate(sizes[:-1])])
        self.num_rows = sum(sizes)
        self.num_allowed = sum([part.request.num_allowed for part in parts])

    def split(self, rows: Ints) -> list[tuple[Part, Ints, Ints]]:
        """Return each part that has some of the rows, their places among the rows, and the part's own row numbers."""
        if len(self.all) == 1:
            return [(self.all[0], np.arange(len(rows)), rows)] if len(rows) else []
        which = np.searchsorted(self.firsts, rows, side="right") - 1
        found = []
        for number, (part, first) in enumerate(zip(self.all, self.firsts.tolist(), strict=True)):
            places = np.flatnonzero(which == number)
            if len(places):
                found.append((part, places, rows[places] - first))
        return found

    def ordinals(self, rows: Ints) -> Ints:
        """Return the ordinal of each row."""
        ordinals = np.empty(len(rows), dtype=np.int64)
        for part, places, own in self.split(rows):
            ordinals[places] = part.snapshot.views.ordinals(own)
        return ordinals

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the row of each of these documents that there is."""
        found: dict[str, int] = {}
        for part, first in zip(self.all, self.firsts.tolist(), strict=True):
            with part.errors():
                rows = {doc_id: part.reader.find(doc_id) for doc_id in ids}
            found |= {doc_id: first + row for doc_id, row in rows.items() if row is not None}
        return found

    def documents(self, rows: Ints, fields: Collection[Field]) -> dict[int, StoredDocument]:
        """Return the documents of these rows, with these fields, by row; rows may come more than once."""
        if len(self.all) == 1:
            [part] = self.all
            with part.errors():
                return part.reader.hit_documents(set(rows.tolist()), fields)
        found: dict[int, StoredDocument] = {}
        each = np.unique(rows)
        for part, places, own in self.split(each):
            with part.errors():
                stored = part.reader.hit_documents(own.tolist(), fields)
            found |= {row: stored[number] for row, number in zip(each[places].tolist(), own.tolist(), strict=True)}
        return found

    def score(self, queries: Floats, pairs: Pairs, scoring: Scoring) -> ScoredPairs:
        """Return the documents with their scores; see ViewSource."""
        scores, (slots, ordinals) = np.empty(len(pairs.which), np.float32), np.empty((2, len(pairs.which)), np.int64)
        for part, places, own in self.split(pairs.doc_rows):
            with part.errors():
                own_pairs = Pairs(own, pairs.which[places])
                scores[places], slots[places] = score_pairs(part.snapshot.views, queries, own_pairs, scoring)
            ordinals[places] = part.snapshot.views.ordinals(own)
        return ScoredPairs(*pairs[::-1], scores, slots, ordinals)

    def view_scores(self, queries: Floats, pairs: Pairs) -> list[Floats]:
        """Return the scores of all views of each pair's document, (k,) float32 each. queries: (q, d) float32."""
        found = [_NO_SCORES] * len(pairs.which)
        for part, places, own in self.split(pairs.doc_rows):
            with part.errors():
                scored = scores_of_views(part.snapshot.views, queries, Pairs(own, pairs.which[places]))
            for place, scores in zip(places.tolist(), scored, strict=True):
                found[place] = scores
        return found
