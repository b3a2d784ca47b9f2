"""The protocol of models that make one vector of a text, and the check of what they return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from mvindex.arrays import as_numbers
from mvindex.errors import EncoderError
from mvindex.records import Floats


class Embedder(Protocol):
    """Makes one vector of each text."""

    @property
    def kind(self) -> str:
        """Return "function", "sentence-transformer" or "openai": what an index records it as."""
        ...

    @property
    def source(self) -> str:
        """Return its name for people: where it comes from, without secrets."""
        ...

    @property
    def identity(self) -> str:
        """Return what tells it from others, as far as that is known without calling it."""
        ...

    @property
    def embeds_alike(self) -> bool:
        """Return whether a query is embedded as a document is, so that one call may hold both."""
        ...

    @property
    def max_chars(self) -> int:
        """Return how long a text may be; longer ones are embedded in pieces."""
        ...

    def embed_documents(self, texts: list[str]) -> Any:
        """Return one vector for each text of a document, (n, d)."""
        ...

    def embed_queries(self, texts: list[str]) -> Any:
        """Return one vector for each query, (n, d)."""
        ...


def check_vectors(result: Any, texts: Sequence[str], place: str) -> Floats:
    """Return a model's result as (n, d) float32; EncoderError names what it is instead."""
    try:
        array = as_numbers(result)
    except ValueError as err:
        raise EncoderError(f"{place}: {err}") from err
    if array.ndim != 2:
        many = "; mvindex.CallableEncoder(function) takes one that makes several views of a text itself"
        raise EncoderError(
            f"{place}: expected an (n, d) array of numbers, got shape {array.shape}{many if array.ndim == 3 else ''}"
        )
    if len(array) != len(texts) or array.shape[1] < 1:
        raise EncoderError(f"{place}: expected a vector for each of {len(texts)} texts, got shape {array.shape}")
    with np.errstate(over="ignore"):  # what overflows is found, and named, in the next line
        rows = np.ascontiguousarray(array, dtype=np.float32)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise EncoderError(
            f"{place}: expected finite numbers, got NaN, infinity or more than float32 holds for the text "
            f"{texts[bad[0]]!r:.60}"
        )
    return rows
