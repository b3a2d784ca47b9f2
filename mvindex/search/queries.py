"""Queries as callers give them: texts and vectors, checked and as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from mvindex.arrays import as_numbers
from mvindex.errors import QueryError
from mvindex.records import Floats, QueryGroup
from mvindex.search.fusion import Mode
from mvindex.store.views import MAX_NORM

Vector: TypeAlias = npt.NDArray[np.floating[Any]]
# Queries searched at once: bounds the memory of their candidates.
QUERY_BATCH = 256
# Far enough below MAX_NORM that float32 sums cannot pass for less than they are.
_PLAIN_SQUARE = np.float32(MAX_NORM**2 / 4)


@dataclass(frozen=True, slots=True)
class TextQueries:
    """Queries of lexical and hybrid search: texts, and their vectors, (q, d) float32, for hybrid."""

    texts: Sequence[str]
    vectors: Floats | None

    def batches(self) -> list[TextQueries]:
        """Return the queries in batches of up to QUERY_BATCH."""
        begins = range(0, len(self.texts), QUERY_BATCH)
        vectors = [None if self.vectors is None else self.vectors[at : at + QUERY_BATCH] for at in begins]
        return [TextQueries(self.texts[at : at + QUERY_BATCH], some) for at, some in zip(begins, vectors, strict=True)]


def check_query_text(text: str, number: int, count: int) -> None:
    """Raise QueryError, with the number among count queries, for an empty text or broken Unicode."""
    which = "the query" if count == 1 else f"query {number}"
    if not text.strip():
        raise QueryError(f"{which} is empty; expected a text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as err:
        raise QueryError(f"{which} is not valid Unicode at position {err.start}") from err


def is_texts(query: Any) -> bool:
    """Return whether the query is a text or a sequence of texts."""
    return isinstance(query, str) or (isinstance(query, Sequence) and all(isinstance(text, str) for text in query))


def as_groups(query: Any) -> list[QueryGroup] | None:
    """Return the groups of a query that is one or a sequence of them, else None; QueryError for a mixture."""
    if isinstance(query, QueryGroup):
        return [query]
    if isinstance(query, str) or not isinstance(query, Sequence):
        return None
    groups = [one for one in query if isinstance(one, QueryGroup)]
    if groups and len(groups) < len(query):
        raise QueryError(f"queries: expected query groups only, got {len(groups)} of {len(query)}")
    return groups or None


def group_texts(group: QueryGroup, text: object) -> list[str] | None:
    """Return the texts of a group, or the one given beside it; None for vectors alone. QueryError for an empty one."""
    source = [text] if text is not None else group.queries
    if not is_texts(source):
        if text is not None:
            raise QueryError(f"text: expected one text for a query group, got {type(text).__name__}")
        return None
    texts = list(cast("Sequence[str]", source))
    for number, one in enumerate(texts, start=1):
        check_query_text(one, number, len(texts))
    return texts


def query_texts(query: Any, text: object, mode: Mode) -> tuple[list[str], bool]:
    """Return the texts of a search, and whether a single one was given.

    Args:
        query: The query of search().
        text: Its text= argument; None where the query is the text.
        mode: For the message of QueryError, raised when there is no text, or an empty one.

    """
    source = query if text is None else text
    if not is_texts(source):
        way_out = (
            "give the text, or both: search(vector, text=..., ...)" if text is None else "expected a text or texts"
        )
        raise QueryError(f"mode={mode.value!r} searches texts, got {type(source).__name__}; {way_out}")
    texts = [source] if isinstance(source, str) else list(cast("Sequence[str]", source))
    for number, one in enumerate(texts, start=1):
        check_query_text(one, number, len(texts))
    return texts, isinstance(source, str)


def as_vectors(query: Any, dim: int | None) -> Floats:
    """Return a (d,) or (q, d) array as float32, without a copy where it is one; QueryError for what is not finite.

    Args:
        query: An array or nested sequence of numbers.
        dim: The dimensions expected; None takes any.

    """
    if _is_plain(query, dim):
        return cast(Floats, query)
    try:
        wide = as_numbers(query).astype(np.float64)
    except ValueError as err:
        raise QueryError(f"query: expected a text, texts, or a (d,) or (q, d) array: {err}") from err
    if wide.ndim not in (1, 2) or (dim is not None and wide.shape[-1] != dim):
        raise QueryError(f"query vectors: expected shape (d,) or (q, d) with d = {dim}, got {wide.shape}")
    norms = np.linalg.norm(np.atleast_2d(wide), axis=1)
    if not (norms <= MAX_NORM).all():
        row = int(np.argmax(~(norms <= MAX_NORM)))
        raise QueryError(f"query vector {row}: expected finite numbers and a norm up to 1e18, got {norms[row]}")
    narrow: Floats = wide.astype(np.float32)
    return narrow


def _is_plain(query: Any, dim: int | None) -> bool:
    """Return whether the query is float32 of small norm, as nearly all are: checked in a third of the time."""
    if not isinstance(query, np.ndarray) or query.dtype != np.float32 or query.ndim not in (1, 2):
        return False
    if (dim is not None and query.shape[-1] != dim) or not query.flags.c_contiguous:
        return False
    values = query.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        # The norm of all vectors together: none has a larger one. NaN compares as False.
        return bool(values.dot(values) <= _PLAIN_SQUARE)
