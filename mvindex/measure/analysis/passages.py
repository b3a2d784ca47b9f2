"""Documents of an analysis up close: their views and questions, also on a plane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.index import embedded_store_of
from mvindex.kernels.score import decode
from mvindex.measure.analysis.questions import AnsweredQuestion
from mvindex.measure.analysis.ranks import NOT_FOUND
from mvindex.records import Doubles, Floats, Ints, span_and_snippet
from mvindex.store.reader import StoredDocument

if TYPE_CHECKING:
    from mvindex.index import Index


def plane(points: Floats) -> tuple[Doubles, float]:
    """Return the points (n, d) in the plane of most variance, (n, 2), and the share of the variance it shows.

    Principal components by singular values. Signs are fixed, so that the same points give the same picture: on each
    axis the point furthest from the centre lies on the positive side.
    """
    centred = points.astype(np.float64) - points.astype(np.float64).mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    placed = np.zeros((len(points), 2))
    num_axes = min(2, len(sizes))
    placed[:, :num_axes] = left[:, :num_axes] * sizes[:num_axes]
    signs = np.sign(placed[np.abs(placed).argmax(axis=0), [0, 1]])
    total = float((sizes**2).sum())
    return placed * np.where(signs == 0, 1, signs), float((sizes[:num_axes] ** 2).sum()) / total if total else 1.0


MOST_CHARS = 4000
_HARDEST = 10
_MAPS = 8
# More views or questions than these would hide each other in a map.
_MOST_POINTS = 32


def hardest(index: Index, answered: Sequence[AnsweredQuestion], ranks: Ints) -> list[dict[str, Any]]:
    """Return the questions whose relevant document ranks lowest, with it and the document that was retrieved first.

    ranks: (q,). Questions answered at rank 1, and questions whose relevant document is not in the index, are left out.
    """
    order = [row for row in np.argsort(-ranks, kind="stable").tolist() if ranks[row] > 1 and answered[row].relevant]
    shown = []
    with embedded_store_of(index).reading(embedded_store_of(index).snapshot) as reader:
        for row in order[:_HARDEST]:
            one = answered[row]
            relevant_id = reader.ids([one.relevant[0]])[one.relevant[0]]
            shown.append(
                {
                    "id": one.question.id,
                    "question": one.question.text,
                    "rank": None if ranks[row] == NOT_FOUND else int(ranks[row]),
                    "answers": list(one.question.answers or ()),
                    "relevant": _document(index, one.vector, relevant_id),
                    "retrieved": _document(index, one.vector, one.first.id),
                }
            )
    return shown


def maps(index: Index, answered: Sequence[AnsweredQuestion], doc_rows: Ints, winners: Ints) -> list[dict[str, Any]]:
    """Return the documents with the most questions that have two views or more, each with its questions in a plane.

    doc_rows: (q,) the relevant document of each question, -1 for none; winners: (q,) the slot of its best view.
    """
    views = embedded_store_of(index).snapshot.views
    numbers = Counter(doc_rows[doc_rows >= 0].tolist())
    several = [row for row, _ in numbers.most_common() if views.starts[row + 1] - views.starts[row] > 1][:_MAPS]
    with embedded_store_of(index).reading(embedded_store_of(index).snapshot) as reader:
        stored = reader.documents(several)
    shown = []
    for row in several:
        question_rows = np.flatnonzero(doc_rows == row)[:_MOST_POINTS].tolist()
        won = [(answered[one], int(winners[one])) for one in question_rows]
        shown.append(_map(stored[row], _views_of(index, row), won))
    return shown


def _map(stored: StoredDocument, views: Floats, won: Sequence[tuple[AnsweredQuestion, int]]) -> dict[str, Any]:
    """Return one map; won: the document's questions, each with the slot that won it."""
    points, explained = plane(np.concatenate([views, np.stack([one.vector for one, _ in won])]))
    return {
        "id": stored.id,
        "title": stored.title,
        "text": stored.text[:MOST_CHARS],
        "explained": explained,
        "views": [
            {
                "slot": slot,
                "x": float(x),
                "y": float(y),
                "snippet": (span_and_snippet(stored, slot)[1] or "")[:MOST_CHARS],
            }
            for slot, (x, y) in enumerate(points[: len(views)])
        ],
        "questions": [
            {"text": one.question.text, "x": float(x), "y": float(y), "slot": slot}
            for (one, slot), (x, y) in zip(won, points[len(views) :], strict=True)
        ],
    }


def _views_of(index: Index, doc_row: int) -> Floats:
    packed, _ = embedded_store_of(index).snapshot.views.fetch(np.array([doc_row]))
    return decode(packed[:_MOST_POINTS])


def _document(index: Index, vector: Floats, doc_id: str) -> dict[str, Any]:
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
