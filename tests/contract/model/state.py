"""The plain model of an index: documents in a dict, what is stored of views, filters and rankings worked out slowly."""

import json
import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from mvindex.records import Document
from mvindex.testing import brute_force


@dataclass(frozen=True)
class Settings:
    """The settings of an index."""

    dim: int
    dtype: str = "fp16"
    temperature: float | None = None
    prune_views: float | None = None

    @property
    def drpq_temperature(self):
        return 1.0 if self.temperature is None else self.temperature


class Given(NamedTuple):
    """A document as it is handed over, with its views (k, d) float32. With an encoder its text makes it new."""

    document: Document
    views: np.ndarray
    has_encoder: bool = False

    @property
    def content(self):
        """The content that makes it differ from an earlier document of its id, metadata apart."""
        own = b"" if self.has_encoder else (self.views.shape, self.views.tobytes())
        return self.document.title, self.document.text, own


@dataclass(eq=False)
class Row:
    """A stored document. Its metadata alone changes in place, so that states which share the row see it at once."""

    given: Given
    document: Document
    views: np.ndarray
    ordinal: int

    def set_metadata(self, metadata):
        self.document = replace(self.document, metadata=json.loads(json.dumps(metadata)))


@dataclass(frozen=True)
class State:
    """The state of a reader: rows by id. number: of the change that made it; built: the rows that the engine covers.

    retired: how many rows of deleted and replaced documents are kept beside; generation: how often they were dropped.
    """

    rows: dict = field(default_factory=dict)
    next_ordinal: int = 0
    number: int = 0
    retired: int = 0
    generation: int = 1
    kind: str = "exact"
    built: frozenset = frozenset()

    def changed(self, **changes):
        return replace(self, number=self.number + 1, **changes)

    @property
    def documents(self):
        return {doc_id: row.document for doc_id, row in self.rows.items()}

    @property
    def fresh_documents(self):
        return 0 if self.kind == "exact" else sum(row not in self.built for row in self.rows.values())


class Counts(NamedTuple):
    """The counts of a call's report."""

    added: int = 0
    replaced: int = 0
    updated: int = 0
    unchanged: int = 0
    views_given: int = 0
    views_stored: int = 0

    def plus(self, other):
        return Counts(*map(sum, zip(self, other, strict=True)))


def took(state, batch, settings):
    """The state after a batch of documents with distinct ids, and what became of them."""
    rows, ordinal, counts = dict(state.rows), state.next_ordinal, Counts()
    for given in batch:
        document, old = given.document, rows.get(given.document.id)
        if old is not None and old.given.content == given.content:
            is_same = dumped(old.document.metadata) == dumped(document.metadata)
            counts = counts.plus(Counts(unchanged=1) if is_same else Counts(updated=1))
            old.set_metadata(document.metadata)
            continue
        views = stored_views(given.views, settings)
        fate = Counts(added=1) if old is None else Counts(replaced=1)
        counts = counts.plus(fate).plus(Counts(views_given=len(given.views), views_stored=len(views)))
        row = Row(given, document, views, ordinal if old is None else old.ordinal)
        row.set_metadata(document.metadata)
        rows[document.id] = row
        ordinal += old is None
    if counts.unchanged == len(batch):
        return state, counts
    return state.changed(rows=rows, next_ordinal=ordinal, retired=state.retired + counts.replaced), counts


def without(state, ids):
    """The state after these documents are gone."""
    if not ids:
        return state
    left = {doc_id: row for doc_id, row in state.rows.items() if doc_id not in ids}
    return state.changed(rows=left, retired=state.retired + len(ids))


def copied(state):
    """The same in rows of their own, as another index has them."""
    copies = {doc_id: replace(row) for doc_id, row in state.rows.items()}
    built = frozenset(copies[doc_id] for doc_id, row in state.rows.items() if row in state.built)
    return state.changed(rows=copies, built=built)


def compacted(state):
    """The same documents without retired rows, and an engine over all of them; nothing, where none are retired."""
    if not state.retired:
        return state
    rows = copied(state).rows
    engine = {"built": frozenset(rows.values())} if rows else {"kind": "exact"}
    return state.changed(rows=rows, retired=0, generation=state.generation + 1, **engine)


def salvaged(state):
    """The documents alone: no engine, and the next ordinal is the one after the last that is left."""
    after = 1 + max((row.ordinal for row in state.rows.values()), default=-1)
    return State(copied(state).rows, next_ordinal=after)


def stored_views(given, settings):
    """The views that are stored, as the index's type holds them: near-duplicates of an earlier one left out."""
    packed = given.astype(np.float16 if settings.dtype == "fp16" else np.float32)
    kept = []
    for view in packed.astype(np.float64).tolist():
        if settings.prune_views is None or all(_distance(view, other) > settings.prune_views for other in kept):
            kept.append(view)
    return np.array(kept).astype(packed.dtype)


def _distance(view, other):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(view, other, strict=True)))


def ranking(state, settings, query, *, condition=None, scoring="max", temperature=None):
    """All documents that pass the filter, (id, score, slot), best first, ties by ordinal."""
    rows = {doc_id: row for doc_id, row in state.rows.items() if condition is None or matches(condition, row.document)}
    return brute_force(
        {doc_id: row.views for doc_id, row in rows.items()},
        query,
        len(rows),
        {doc_id: row.ordinal for doc_id, row in rows.items()},
        scoring=scoring,
        temperature=settings.drpq_temperature if temperature is None else temperature,
        dtype=settings.dtype,
    )


def dumped(metadata):
    """Metadata to be compared: 1, 1.0 and true are three things."""
    return json.dumps(metadata, sort_keys=True)


def matches(condition, document):
    """Return whether a document passes a filter, by the grammar."""
    return all(_holds(name, value, document) for name, value in condition.items())


def _holds(name, value, document):
    name = name.removeprefix("$")
    if name == "and":
        return all(matches(part, document) for part in value)
    if name == "or":
        return any(matches(part, document) for part in value)
    if name == "not":
        return not matches(value, document)
    found = _field(name, document)
    if not isinstance(value, dict):
        return _equal(found, value)
    return all(_OPERATORS[operator](found, operand) for operator, operand in value.items())


def _field(name, document):
    """The value of a field; None where there is none, which is what a null is."""
    if name == "id":
        return document.id
    value = document.metadata
    if name in value:
        return value[name]
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _kind(value):
    kinds = {bool: "boolean", int: "number", float: "number", str: "text"}
    return kinds.get(type(value))


def _equal(found, operand):
    if operand is None:
        return found is None
    return _kind(found) == _kind(operand) and found == operand


def _in_order(compare):
    return lambda found, operand: _kind(found) == _kind(operand) and compare(found, operand)


def _containing(quantifier):
    def holds(found, operands):
        members = found if isinstance(found, list) else []
        each = [any(_equal(member, operand) for member in members) for operand in operands]
        return isinstance(found, list) and quantifier(each)

    return holds


_OPERATORS = {
    "contains": lambda found, operand: _containing(any)(found, [operand]),
    "contains_any": _containing(any),
    "contains_all": _containing(all),
    "eq": _equal,
    "ne": lambda found, operand: not _equal(found, operand),
    "in": lambda found, operands: any(_equal(found, operand) for operand in operands),
    "nin": lambda found, operands: not any(_equal(found, operand) for operand in operands),
    "exists": lambda found, operand: (found is not None) == operand,
    "lt": _in_order(lambda found, operand: found < operand),
    "lte": _in_order(lambda found, operand: found <= operand),
    "gt": _in_order(lambda found, operand: found > operand),
    "gte": _in_order(lambda found, operand: found >= operand),
}
