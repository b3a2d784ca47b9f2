"""Documents as the report shows them: their views' scores for a question, the hardest questions, maps of views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.analysis.maps import plane
from mvindex.analysis.questions import Answered
from mvindex.analysis.ranks import NOT_FOUND
from mvindex.index.results import stands_for
from mvindex.records import Floats, Ints
from mvindex.store.reader import StoredDocument
from mvindex.store.views import decode

if TYPE_CHECKING:
    from mvindex.index import Index

MOST_CHARS = 4000
_HARDEST = 10
_MAPS = 8
# Views and questions of a map beyond these would hide each other.
_MOST_POINTS = 32


def hardest(index: Index, answered: Sequence[Answered], ranks: Ints) -> list[dict[str, Any]]:
    """The questions whose wanted document stands furthest down, with it and the document found instead, side by side.

    ranks: (q,). Questions answered at rank 1, and those whose wanted document is not in the index, are none of them.
    """
    order = [row for row in np.argsort(-ranks, kind="stable").tolist() if ranks[row] > 1 and answered[row].wanted]
    shown = []
    with index.store.reading(index.store.snapshot) as reader:
        for row in order[:_HARDEST]:
            one = answered[row]
            wanted_id = reader.ids([one.wanted[0]])[one.wanted[0]]
            shown.append(
                {
                    "id": one.question.id,
                    "question": one.question.text,
                    "rank": None if ranks[row] == NOT_FOUND else int(ranks[row]),
                    "answers": list(one.question.answers or ()),
                    "wanted": _passage(index, one.vector, wanted_id),
                    "found": _passage(index, one.vector, one.first.id),
                }
            )
    return shown


def maps(index: Index, answered: Sequence[Answered], places: Ints, winners: Ints) -> list[dict[str, Any]]:
    """The documents most asked about that have two views or more, each with its questions in one plane.

    places: (q,) the document row that each question wants, -1 for none; winners: (q,) the slot of its best view.
    """
    views = index.store.snapshot.views
    asked = Counter(places[places >= 0].tolist())
    several = [row for row, _ in asked.most_common() if views.starts[row + 1] - views.starts[row] > 1][:_MAPS]
    with index.store.reading(index.store.snapshot) as reader:
        stored = reader.documents(several)
    return [
        _map(stored[row], _views_of(index, row), (answered, np.flatnonzero(places == row), winners)) for row in several
    ]


def _map(stored: StoredDocument, views: Floats, asked: tuple[Sequence[Answered], Ints, Ints]) -> dict[str, Any]:
    answered, which, winners = asked
    shown = which[:_MOST_POINTS].tolist()
    points, explained = plane(np.concatenate([views, np.stack([answered[row].vector for row in shown])]))
    return {
        "id": stored.id,
        "title": stored.title,
        "text": stored.text[:MOST_CHARS],
        "explained": explained,
        "views": [
            {"slot": slot, "x": float(x), "y": float(y), "snippet": (stands_for(stored, slot)[1] or "")[:MOST_CHARS]}
            for slot, (x, y) in enumerate(points[: len(views)])
        ],
        "questions": [
            {"text": answered[row].question.text, "x": float(x), "y": float(y), "slot": int(winners[row])}
            for row, (x, y) in zip(shown, points[len(views) :], strict=True)
        ],
    }


def _views_of(index: Index, doc_row: int) -> Floats:
    packed, _ = index.store.snapshot.views.fetch(np.array([doc_row]))
    return decode(packed[:_MOST_POINTS])


def _passage(index: Index, vector: Floats, doc_id: str) -> dict[str, Any]:
    document = index.get(doc_id)
    text, title = (document.text, document.title) if document else ("", "")
    views = index.explain(vector, doc_id)
    return {
        "id": doc_id,
        "title": title,
        "text": text[:MOST_CHARS],
        "is_cut": len(text) > MOST_CHARS,
        "score": views[0].score,
        "slot": views[0].slot,
        "views": [
            {"slot": view.slot, "score": view.score, "span": list(view.span) if view.span else None} for view in views
        ],
    }
