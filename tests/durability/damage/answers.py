"""Queries to an index, each answered in full or with one of mvindex's own errors."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import mvindex
from tests.durability.damage.kits import Kit
from tests.durability.documents import doc_id, document

Answer = Any
_SHOWN = 40


class Error(NamedTuple):
    """An error of mvindex's own, by class and message."""

    kind: str
    message: str


def queries_of(kit: Kit) -> dict[str, Callable[[mvindex.Index], Answer]]:
    """Return the queries by name: searches of every kind, each document by its id, absent ids, all documents."""
    dim = kit.dim or 8
    queries = np.random.default_rng(7).standard_normal((3, dim)).astype(np.float32)
    numbers = range(kit.count + 14) if kit.count < _SHOWN else range(0, kit.count + 14, kit.count // _SHOWN)
    by_name: dict[str, Callable[[mvindex.Index], Answer]] = {
        "search max": lambda index: hits(index.search(queries, top_k=5)),
        "search drpq": lambda index: hits(index.search(queries, top_k=5, scoring="drpq")),
        "search exact": lambda index: hits(index.search(queries[:1], top_k=4, exact=True)),
        "search filter": lambda index: hits(index.search(queries[:1], top_k=6, filter={"group": {"in": [1, 3]}})),
        "search by id": lambda index: hits(index.search(queries[:1], top_k=3, filter={"id": doc_id(8)})),
        "search all": lambda index: hits([index.search(queries[0], top_k=10_000)]),
        "documents": lambda index: sorted(map(content, index), key=repr),
        "number": len,
        "explain": lambda index: [tuple(view) for view in index.explain(queries[1], doc_id(8))],
        "get absent": lambda index: [index.get(f"absent-{number}") for number in range(3)],
        "in absent": lambda index: [f"absent-{number}" in index for number in range(3)],
    }
    if kit.dim is None:
        texts = [document(8).text.split("|")[0], "größe"]
        by_name["search text"] = lambda index: hits(index.search(texts, top_k=5))
    for number in numbers:
        by_name[f"get {number}"] = lambda index, number=number: content(index.get(doc_id(number)))
        if number % 3 == 0:
            by_name[f"in {number}"] = lambda index, number=number: doc_id(number) in index
    return by_name


def hits(results: list[mvindex.SearchResult]) -> Answer:
    """Return all fields of the hits."""
    return [
        [
            (hit.id, hit.score, hit.slot, hit.span, hit.snippet, hit.title, hit.text, repr(dict(hit.metadata)))
            for hit in result.hits
        ]
        for result in results
    ]


def content(found: mvindex.Document | None) -> Answer:
    """Return all fields of a document."""
    return None if found is None else (found.id, found.title, found.text, repr(dict(found.metadata)))


def ask(kit: Kit, path: Path, order: random.Random | None = None, few: bool = False) -> dict[str, Answer | Error]:
    """Return the answers of the index at the path; exceptions other than mvindex's own are raised.

    order: shuffles the queries; few: only a tenth of those about single ids are made.
    """
    by_name = queries_of(kit)
    names = list(by_name)
    if order is not None:
        names = [name for name in names if not (few and name[-1].isdigit() and order.random() < 0.9)]
        order.shuffle(names)
    try:
        index = kit.open(path)
    except mvindex.MvindexError as err:
        return {"open": error(err)}
    with index:
        return {name: _answer(by_name[name], index) for name in names}


def _answer(query: Callable[[mvindex.Index], Answer], index: mvindex.Index) -> Answer | Error:
    try:
        return query(index)
    except mvindex.MvindexError as err:
        return error(err)


def error(err: mvindex.MvindexError) -> Error:
    """Return its class and message."""
    return Error(type(err).__name__, str(err))


def wrong(found: Mapping[str, Answer | Error], *states: Mapping[str, Answer]) -> list[str]:
    """Return the queries that were neither refused nor answered as in the state that most answers fit."""
    each = [
        [name for name, answer in found.items() if not isinstance(answer, Error) and answer != state.get(name)]
        for state in states
    ]
    return min(each, key=len)
