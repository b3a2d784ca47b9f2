"""A function as a model: texts to an (n, d) array."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mvindex.arrays import as_numbers

# Some 2,000 tokens, which embedding models of today read at once; longer texts are embedded in pieces.
MAX_CHARS = 8_000


class FunctionEmbedder:
    """A function of the caller as a model; query_function: for queries, where they are embedded otherwise."""

    kind = "function"
    embeds_alike = False
    max_chars = MAX_CHARS

    def __init__(
        self,
        function: Callable[[list[str]], Any],
        query_function: Callable[[list[str]], Any] | None = None,
        name: str | None = None,
    ) -> None:
        """Take the functions; name: what an index records, the function's qualified name by default."""
        self._function, self._query_function = function, query_function or function
        own = qualified_name(function)
        both = own if query_function is None else f"{own} + {qualified_name(query_function)}"
        self.source = name or both

    @property
    def identity(self) -> str:
        """Return the name. A lambda's is that of all lambdas of its scope: only its vectors tell it from others."""
        return f"function:{self.source}"

    def embed_documents(self, texts: list[str]) -> Any:
        """Return the function's result."""
        return self._function(texts)

    def embed_queries(self, texts: list[str]) -> Any:
        """Return the query function's result."""
        return self._query_function(texts)


def makes_views(function: Callable[[list[str]], Any]) -> bool:
    """Return whether a function gives several vectors of a text, (k, d), tried with one text."""
    result = function(["A short text."])
    try:
        return as_numbers(result[0]).ndim == 2
    except (TypeError, ValueError, LookupError):  # a wrong result is named when it is used
        return False


def qualified_name(function: Callable[..., Any]) -> str:
    """Return module and qualified name of a function, of what a partial calls, or of an object's class."""
    if isinstance(function, functools.partial):
        return f"partial({qualified_name(function.func)})"
    named = function if getattr(function, "__qualname__", "") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
