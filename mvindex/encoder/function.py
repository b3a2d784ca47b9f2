"""The protocol of encoders, and encoders made of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from mvindex.arrays import as_numbers
from mvindex.errors import ConfigError, EncoderError
from mvindex.records import CountCallback, Document, Floats, Views, plain_value

# A slice of documents is encoded at once, whatever it is a part of: the same documents, cut alike, have the same bits.
SLICE_DOCUMENTS = 1024
SLICE_CHARS = 1_000_000
# Slices that an ingest commits at once for a GPU, which would else wait for each commit.
DEVICE_CHUNKS = 16


class Encoder(Protocol):
    """Turns texts into vectors. Two encoders of equal fingerprint give the same vectors, up to rounding."""

    @property
    def dim(self) -> int:
        """Return the dimensions of every vector."""
        ...

    @property
    def max_views(self) -> int | None:
        """Return the most views a document gets; None where nothing bounds them."""
        ...

    @property
    def fingerprint(self) -> str:
        """Return a name of everything that changes a vector."""
        ...

    @property
    def spec(self) -> dict[str, Any]:
        """Return JSON that encoder_from_spec() opens the same encoder from; its "fingerprint" is the encoder's."""
        ...

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return the views of the documents, in order, at least one each; EncoderError names a document at fault."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32."""
        ...


@runtime_checkable
class PartialEncoder(Protocol):
    """An encoder some of whose views depend on a part of their document only, and can be kept when others change."""

    def view_keys(self, documents: Sequence[Document]) -> list[list[bytes]]:
        """Return a hash for each view of each document: views of one hash have one vector.

        A document whose views all depend on the whole of it has an empty list.
        """
        ...

    def encode_unknown(
        self, documents: Sequence[Document], known: Mapping[bytes, Floats], on_progress: CountCallback
    ) -> Views:
        """Return what encode_documents() does; vectors (dim,) known by the hash of their view are taken as they are."""
        ...


def slices(documents: Sequence[Document]) -> Iterator[Sequence[Document]]:
    """Yield the documents in slices: SLICE_DOCUMENTS each, or fewer where their texts reach SLICE_CHARS."""
    begin = num_chars = 0
    for end, document in enumerate(documents, 1):
        num_chars += len(document.text) + len(document.title)
        if end - begin == SLICE_DOCUMENTS or num_chars >= SLICE_CHARS:
            yield documents[begin:end]
            begin, num_chars = end, 0
    if begin < len(documents):
        yield documents[begin:]


def join_views(parts: Sequence[Views], dim: int = 0) -> Views:
    """Return the views of all parts, one after the other; of no part, no views of this many dimensions."""
    if not parts:
        return Views(np.zeros((0, dim), np.float32), np.zeros(1, np.int64), np.zeros((0, 2), np.int64))
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.starts) for part in parts])
    flags = [np.zeros(len(part.rows), dtype=bool) if part.is_reused is None else part.is_reused for part in parts]
    return Views(
        np.concatenate([part.rows for part in parts]),
        np.append(0, np.cumsum(counts)),
        np.concatenate([part.spans for part in parts]),
        None if all(part.is_reused is None for part in parts) else np.concatenate(flags),
    )


def join_text(document: Document) -> str:
    """Return title, newline, text; or the one of them that is not empty."""
    return f"{document.title}\n{document.text}" if document.title and document.text else document.title or document.text


_PROBE_TEXT = "text"


class CallableEncoder:
    """An encoder that calls a function of yours.

    Args:
        function: Takes a list of n texts (title, newline, text). Returns (n, d), one view each, or
            (n, k, d), or a list of n arrays (k_i, d), k_i >= 1, of integers or floats of any norm.
        query_function: Takes a list of q texts and returns a (q, d) array; by default `function`, which must then
            return one vector per text.
        name: What an index records; by default the module and qualified name of the function. A lambda needs one.
        dim: Dimensions; found by one query where they are not given.

    Raises:
        ConfigError: For an invalid dim or name.
        EncoderError: Later, for a result of another number, shape, type or dim, or values not finite as float32.
            What the function itself raises passes through.

    """

    def __init__(
        self,
        function: Callable[[list[str]], Any],
        *,
        query_function: Callable[[list[str]], Any] | None = None,
        name: str | None = None,
        dim: int | None = None,
    ) -> None:
        dim = plain_value(dim)
        if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int) or dim < 1):
            raise ConfigError(f"dim is {dim!r}; expected a whole number from 1 on")
        self._function = function
        self._query_function = query_function or function
        self._name = name or _qualified_name(function)
        self._dim = dim

    @property
    def dim(self) -> int:
        """Return the dimensions of every vector; ask the function for one query where it is not known yet."""
        if self._dim is None:
            self.encode_queries([_PROBE_TEXT])
        if self._dim is None:
            raise EncoderError(f"{self._name}: no dim after a query; the function gave no vector")
        return self._dim

    @property
    def max_views(self) -> int | None:
        """Return None: the function decides."""
        return None

    @property
    def fingerprint(self) -> str:
        """Return the name, marked as a callable's."""
        return f"callable:{self._name}"

    @property
    def spec(self) -> dict[str, Any]:
        """Return what an index stores: enough to recognise the same callable, not to make it."""
        return {"kind": "callable", "name": self._name, "fingerprint": self.fingerprint}

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return the function's views of the documents; their spans are unknown, hence -1. One call for all of them."""
        if not documents:
            return Views(np.zeros((0, self.dim), np.float32), np.zeros(1, np.int64), np.zeros((0, 2), np.int64))
        result = self._function([join_text(document) for document in documents])
        arrays = self._arrays(result, [f"document {document.id!r}" for document in documents])
        starts = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        if on_progress is not None:
            on_progress(len(documents))
        return Views(np.concatenate(arrays), starts, np.full((starts[-1], 2), -1, dtype=np.int64))

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32."""
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        names = [f"query {number}" for number in range(1, len(texts) + 1)]
        arrays = self._arrays(self._query_function(list(texts)), names)
        for array, name in zip(arrays, names, strict=True):
            if len(array) != 1:
                raise EncoderError(f"{self._name}: {name} got {len(array)} vectors; expected 1 (give a query_function)")
        return np.concatenate(arrays)

    def _arrays(self, result: Any, names: Sequence[str]) -> list[Floats]:
        """Return each text's vectors as (k, dim) float32."""
        is_list = isinstance(result, list | tuple)
        items = result if is_list else self._numbers(result, "the result")
        if not is_list and items.ndim not in (2, 3):
            raise EncoderError(
                f"{self._name}: the result has shape {items.shape}; expected (n, d), (n, k, d) or a list of (k, d)"
            )
        if len(items) != len(names):
            raise EncoderError(f"{self._name}: {len(items)} results for {len(names)} texts; expected one for each")
        each = zip(items, names, strict=True)
        return [self._checked(self._numbers(item, name) if is_list else item, name) for item, name in each]

    def _checked(self, given: npt.NDArray[Any], name: str) -> Floats:
        """Return one text's vectors as (k, dim) float32."""
        array = given[None] if given.ndim == 1 else given
        if array.ndim != 2 or len(array) < 1 or array.shape[1] < 1:
            raise EncoderError(f"{self._name}: {name} got shape {given.shape}; expected (d,) or (k, d) with k >= 1")
        if self._dim is None:
            self._dim = array.shape[1]
        if array.shape[1] != self._dim:
            raise EncoderError(f"{self._name}: {name} got vectors of {array.shape[1]} dimensions; expected {self._dim}")
        with np.errstate(over="ignore"):  # what overflows is found, and named, in the next line
            rows = np.ascontiguousarray(array, dtype=np.float32)
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            raise EncoderError(
                f"{self._name}: vector {bad[0]} of {name} holds NaN, infinity or more than float32 holds"
            )
        return rows

    def _numbers(self, value: Any, name: str) -> npt.NDArray[Any]:
        try:
            return as_numbers(value)
        except ValueError as err:
            raise EncoderError(f"{self._name}: {name}: {err}") from err


def _qualified_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", "")
    if not name or "<lambda>" in name:
        raise ConfigError(
            f"the encoder {function!r} has no name of its own; give it one: CallableEncoder(..., name=...)"
        )
    return f"{function.__module__}.{name}"
