"""Citations of the hits of a search; each is chosen when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from mvindex.corpus.text.citation import Citer, ScoredViews
from mvindex.records import Citation, Cite, Floats, Ints
from mvindex.search.rescore import Pairs, scores_of_views
from mvindex.store.reader import StoredDocument
from mvindex.store.views import MappedViews

_NO_SCORES = np.empty(0, dtype=np.float32)


def cites_of(
    text: str, rows: Sequence[int], stored: Mapping[int, StoredDocument], scores: Sequence[Floats] | None
) -> list[Cite]:
    """Return what chooses the citation of each hit of one query.

    Args:
        text: The query.
        rows: Document rows of the hits.
        stored: The documents, by row, with their texts.
        scores: For each hit the scores of its views, (k,); None for a search without views.

    """
    citer = Citer(text)
    known: Sequence[Floats | None] = [None] * len(rows) if scores is None else scores
    return [partial(_cite, citer, stored[row], own) for row, own in zip(rows, known, strict=True)]


def view_scores_of_hits(shards: Iterable[tuple[MappedViews, Ints, Ints]], queries: Floats, which: Ints) -> list[Floats]:
    """Return the scores of all views of each hit, (k,) float32 each.

    Args:
        shards: Views of each store, with the places of its hits among all, and its document rows of these.
        queries: (q, d) float32.
        which: (m,) the number of each hit's query.

    """
    found = [_NO_SCORES] * len(which)
    for views, places, rows in shards:
        parts = scores_of_views(views, queries, Pairs(rows, which[places]))
        for place, scores in zip(places.tolist(), parts, strict=True):
            found[place] = scores
    return found


def _cite(citer: Citer, stored: StoredDocument, scores: Floats | None) -> Citation | None:
    views = None if scores is None else ScoredViews(stored.spans, scores)
    found = citer.cite(stored.text, stored.title, views)
    return None if found is None else _placed(found, stored)


def _placed(cited: Citation, stored: StoredDocument) -> Citation:
    """Return a citation with its place, as far as the document's metadata tell it; see Citation."""
    metadata = stored.metadata
    file, page, first = metadata.get("file"), metadata.get("page"), metadata.get("line")
    if not isinstance(file, str) and type(page) is not int and type(first) is not int:
        return cited
    line = first + stored.text.count("\n", 0, cited.start) if type(first) is int else None
    return replace(
        cited,
        file=file if isinstance(file, str) else None,
        page=page if type(page) is int else None,
        line=line,
        end_line=None if line is None else line + cited.text.count("\n"),
    )
