"""Questions to an index: each is answered, or refused with one of mvindex' own errors."""

from pathlib import Path
from typing import Any

import numpy as np

import mvindex
from mvindex.errors import MvindexError

Answer = Any

_QUERIES = np.random.default_rng(7).integers(-64, 64, (2, 8)).astype(np.float32) / 64
_IDS = ("日本-2", "größe-1", "plain", "last", "absent")
ALWAYS = {
    "number": len,
    "documents": lambda index: sorted(map(content, index), key=repr),
    "get": lambda index: [content(index.get(doc_id)) for doc_id in _IDS],
}
# Of these an input has one.
SEARCHES = {
    "search": lambda index: hits(index.search(_QUERIES, top_k=3)),
    "search drpq": lambda index: hits(index.search(_QUERIES, top_k=9, scoring="drpq")),
    "search exact": lambda index: hits(index.search(_QUERIES[:1], top_k=2, exact=True)),
    "search filter": lambda index: hits(index.search(_QUERIES[:1], top_k=4, filter={"group": {"in": [1, 2, 3]}})),
    "explain": lambda index: [tuple(view) for view in index.explain(_QUERIES[0], _one_of(index))],
}


def _one_of(index: mvindex.Index) -> str:
    return next((doc_id for doc_id in _IDS if doc_id in index), _IDS[0])


def hits(results: list[mvindex.SearchResult]) -> Answer:
    """Return everything that the results say of their hits."""
    return [
        [
            (hit.id, hit.score, hit.slot, hit.span, hit.snippet, hit.title, hit.text, repr(hit.metadata))
            for hit in result.hits
        ]
        for result in results
    ]


def content(found: mvindex.Document | None) -> Answer:
    """Return everything that a document says."""
    return None if found is None else (found.id, found.title, found.text, repr(found.metadata))


def asked(path: Path, choice: int | None = None) -> dict[str, Answer | MvindexError]:
    """Return each query's answer or error; errors not of mvindex go through. choice: of one of the searches."""
    names = list(SEARCHES) if choice is None else [list(SEARCHES)[choice % len(SEARCHES)]]
    questions = ALWAYS | {name: SEARCHES[name] for name in names}
    try:
        index = mvindex.open(path)
    except MvindexError as err:
        return {"open": bare(err)}
    with index:
        return {name: _answer(question, index) for name, question in questions.items()}


def _answer(question, index: mvindex.Index) -> Answer | MvindexError:
    try:
        return question(index)
    except MvindexError as err:
        return bare(err)


def bare(err: MvindexError) -> MvindexError:
    """Return the error without its traceback, which would keep connections to the catalog open."""
    err.__cause__ = err.__context__ = None
    return err.with_traceback(None)


def refusals(answers: dict[str, Answer | MvindexError]) -> list[MvindexError]:
    """Return the errors among the answers."""
    return [answer for answer in answers.values() if isinstance(answer, MvindexError)]
