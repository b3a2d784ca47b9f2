"""An encoder of any model that makes one vector of a text: the model, a function, and its views."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash

from mvindex.arrays import as_numbers
from mvindex.corpus.text.parts import Splitter
from mvindex.corpus.text.sentences import merge_sentences
from mvindex.encoder.checkpoint.families import SINGLE, SNIPPETS
from mvindex.encoder.function import join_text
from mvindex.encoder.text import NO_SPAN
from mvindex.errors import ConfigError, EncoderError
from mvindex.records import CountCallback, Document, Doubles, Floats, Ints, Span, Views, has_visible, no_progress


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


# Texts embedded by one call of the model.
TEXTS_AT_ONCE = 256
# Its vector tells one model from another of the same name.
_PROBE_TEXT = "A short text, embedded to recognise the model."
_PROBE_NUMBERS = 16
# Rounding of other hardware and number types stays far below; other models differ by about 1.4.
_PROBE_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPlan:
    """How a document becomes views: family "snippets" (a view for each) or "single" (one), at most max_views."""

    family: str = SNIPPETS.name
    max_views: int = SNIPPETS.default_max_views
    splitter: Splitter = SNIPPETS.splitter

    def __post_init__(self) -> None:
        if self.family not in (SNIPPETS.name, SINGLE.name):
            raise ConfigError(
                f"family: expected 'snippets' or 'single' for a model that makes one vector of a text, "
                f"got {self.family!r}"
            )
        if isinstance(self.max_views, bool) or not isinstance(self.max_views, int) or self.max_views < 1:
            raise ConfigError(f"max_views: expected a whole number from 1 on, got {self.max_views!r}")

    def spans(self, text: str, parts: Sequence[Span]) -> list[Span]:
        """Return the characters of each view of a text; NO_SPAN where it has nothing visible."""
        if not parts:
            return [(0, len(text)) if has_visible(text) else NO_SPAN]
        if self.family == SINGLE.name:
            return [(0, len(text))]
        return merge_sentences(parts, self.max_views)


class _Piece(NamedTuple):
    """A text to embed: a view, or a part of a long one, which counts by its length."""

    row: int
    text: str


class EmbeddingEncoder:
    """An encoder whose vectors a model of one vector a text gives.

    Every snippet is embedded as a text of its own behind the document's title. The vector of a text that is longer
    than the model reads is the mean over its pieces, weighted by their lengths.
    """

    def __init__(self, embedder: Embedder, plan: ViewPlan | None = None, spec: Mapping[str, Any] | None = None) -> None:
        """Take the model; spec: of an index that it opens by itself, checked when the model is first called."""
        self.embedder, self.plan = embedder, plan or ViewPlan()
        self._expected = spec
        self._dim: int | None = None if spec is None else int(spec["dim"])
        self._probe: list[float] | None = None

    @property
    def dim(self) -> int:
        """Return the dimensions of every vector; the model is called once where they are not known."""
        if self._dim is None:
            self.probe()
        if self._dim is None:
            raise EncoderError(f"{self.embedder.source}: the model gave no vector")
        return self._dim

    @property
    def max_views(self) -> int | None:
        """Return the most views a document gets."""
        return 1 if self.plan.family == SINGLE.name else self.plan.max_views

    @property
    def fingerprint(self) -> str:
        """Return how views are made, and the model's identity and dimensions."""
        splitter = self.plan.splitter.version
        return f"{self.plan.family}-{self.max_views}:{splitter}:{self.embedder.identity}:{self.dim}"

    @property
    def spec(self) -> dict[str, Any]:
        """Return what an index stores: how views are made, and what the model is recognised by."""
        return {
            "kind": self.embedder.kind,
            "source": self.embedder.source,
            "family": self.plan.family,
            "max_views": self.max_views,
            "splitter": self.plan.splitter.value,
            "fingerprint": self.fingerprint,
            "dim": self.dim,
            "probe": self.probe(),
        }

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return the views of the documents, in order."""
        pieces, starts, spans = self._arranged(documents)
        return Views(self._embed_pieces(pieces, starts.tolist(), on_progress or no_progress), starts, spans)

    def view_keys(self, documents: Sequence[Document]) -> list[list[bytes]]:
        """Return a hash of the texts that are embedded for each view."""
        pieces, starts, _ = self._arranged(documents)
        keys = _keys(pieces, int(starts[-1]))
        return [keys[begin:end] for begin, end in pairwise(starts.tolist())]

    def encode_unknown(
        self, documents: Sequence[Document], known: Mapping[bytes, Floats], on_progress: CountCallback
    ) -> Views:
        """Return the views; only texts of views whose vector is not known are embedded."""
        pieces, starts, spans = self._arranged(documents)
        found = [known.get(key) for key in _keys(pieces, int(starts[-1]))]
        is_known = np.array([vector is not None for vector in found], dtype=bool)
        rows = np.empty((len(found), self.dim), dtype=np.float32)
        unknown = np.flatnonzero(~is_known)
        row_of = np.cumsum(~is_known) - 1
        left = [piece._replace(row=int(row_of[piece.row])) for piece in pieces if not is_known[piece.row]]
        # Where the unknown views of each document start.
        left_starts = np.append(0, np.cumsum(~is_known))[starts]
        rows[unknown] = self._embed_pieces(left, left_starts.tolist(), on_progress)
        on_progress(0 if left else len(documents))
        for row in np.flatnonzero(is_known).tolist():
            rows[row] = found[row]
        return Views(rows, starts, spans, is_known)

    def _arranged(self, documents: Sequence[Document]) -> tuple[list[_Piece], Ints, Ints]:
        """Return the texts to embed, where the views of each document start, (n + 1,), and the spans of all, (r, 2)."""
        spans = [self.plan.spans(document.text, self._parts(document)) for document in documents]
        starts = np.cumsum([0, *map(len, spans)], dtype=np.int64)
        pieces = [
            piece
            for document, own, row in zip(documents, spans, starts.tolist(), strict=False)
            for piece in self._pieces(document, own, row)
        ]
        return pieces, starts, np.array([span for own in spans for span in own], dtype=np.int64).reshape(-1, 2)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32."""
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        given = list(texts)
        # One call less before the first answer.
        is_probed = self._expected is not None and self._probe is None and self.embedder.embeds_alike
        asked = [*given, _PROBE_TEXT] if is_probed else given
        rows = self._checked(self.embedder.embed_queries(asked), asked)
        if is_probed:
            self._probe = _project(rows[-1])
        self._check_expected()
        return rows[: len(given)]

    def probe(self) -> list[float]:
        """Return a few numbers by which the model is recognised: projections of the vector of a fixed text."""
        if self._probe is None:
            vector = self._checked(self.embedder.embed_documents([_PROBE_TEXT]), [_PROBE_TEXT])[0]
            self._probe = _project(vector)
        return self._probe

    def check_same(self, spec: Mapping[str, Any], place: str) -> None:
        """Raise ConfigError unless the model gives the vectors that this spec was recorded with."""
        expected, found = np.array(spec.get("probe") or self.probe()), np.array(self.probe())
        if np.linalg.norm(found - expected) > _PROBE_TOLERANCE * max(float(np.linalg.norm(expected)), 1e-9):
            raise ConfigError(
                f"{place}: expected the model that made the index, {spec.get('source')!r}, got "
                f"{self.embedder.source!r}, which gives other vectors; vectors of two models cannot be compared. "
                "Give the model that made the index, or ingest again with this one"
            )

    def _parts(self, document: Document) -> list[Span]:
        return self.plan.splitter.split(document.text) if has_visible(document.text) else []

    def _pieces(self, document: Document, spans: Sequence[Span], row: int) -> Iterator[_Piece]:
        """Yield the texts of a document's views."""
        title = document.title if has_visible(document.title) else ""
        head = f"{title[: self.embedder.max_chars // 4]}\n" if title else ""
        room = self.embedder.max_chars - len(head)
        for number, (begin, end) in enumerate(spans, start=row):
            if begin < 0:
                yield _Piece(number, join_text(document)[: self.embedder.max_chars])
                continue
            for first, last in _cut(document.text, (begin, end), room):
                yield _Piece(number, head + document.text[first:last])

    def _embed_pieces(self, pieces: Sequence[_Piece], starts: Sequence[int], on_progress: CountCallback) -> Floats:
        """Return a row for each view, the mean of its pieces."""
        self._check_expected()
        totals: Doubles | None = None
        lengths = np.zeros((starts[-1], 2))
        num_done = 0
        for begin in range(0, len(pieces), TEXTS_AT_ONCE):
            some = pieces[begin : begin + TEXTS_AT_ONCE]
            texts = [piece.text for piece in some]
            vectors = self._checked(self.embedder.embed_documents(texts), texts).astype(np.float64)
            if totals is None:
                totals = np.zeros((starts[-1], vectors.shape[1]))
            rows = np.array([piece.row for piece in some])
            weights = np.array([len(piece.text) for piece in some], dtype=np.float64)
            np.add.at(totals, rows, vectors * weights[:, None])
            norms = np.linalg.norm(vectors, axis=1)
            np.add.at(lengths, rows, np.stack([weights, weights * norms], axis=1))
            # The view of the next piece may lack some of its own.
            finished = pieces[begin + len(some)].row if begin + len(some) < len(pieces) else starts[-1]
            done = int(np.searchsorted(starts, finished, side="right")) - 1
            on_progress(done - num_done)
            num_done = done
        if totals is None:
            return np.zeros((0, self.dim), np.float32)
        return _scaled_means(totals, lengths)

    def _checked(self, result: Any, texts: Sequence[str]) -> Floats:
        rows = check_vectors(result, texts, self.embedder.source)
        if self._dim is None:
            self._dim = rows.shape[1]
        if rows.shape[1] != self._dim:
            raise EncoderError(
                f"{self.embedder.source}: expected vectors of {self._dim} dimensions, got {rows.shape[1]}"
            )
        return rows

    def _check_expected(self) -> None:
        """Check the model before its first vectors are used, where an index opened it by itself."""
        if self._expected is not None:
            self.check_same(self._expected, "encoder")
            self._expected = None


def _keys(pieces: Sequence[_Piece], num_rows: int) -> list[bytes]:
    """Return for each row a hash of the texts of its pieces."""
    hashes = [xxhash.xxh3_128() for _ in range(num_rows)]
    for piece in pieces:
        text = piece.text.encode()
        hashes[piece.row].update(len(text).to_bytes(8, "little") + text)
    return [each.digest() for each in hashes]


def _cut(text: str, span: Span, room: int) -> Iterator[Span]:
    """Yield the span in pieces of at most `room` characters, cut at whitespace where there is some."""
    begin, end = span
    while end - begin > room:
        cut = max(text.rfind(gap, begin + room // 2, begin + room) for gap in (" ", "\n"))
        cut = begin + room if cut < 0 else cut
        yield begin, cut
        begin = cut
    yield begin, end


def _scaled_means(totals: Doubles, lengths: Doubles) -> Floats:
    """Return the means of pieces, as long as the pieces are on average: a mean of unit vectors is shorter."""
    norms = np.linalg.norm(totals, axis=1)
    scale = np.divide(lengths[:, 1], lengths[:, 0] * norms, out=np.zeros_like(norms), where=norms > 0)
    means: Floats = (totals * scale[:, None]).astype(np.float32)
    return means


def _project(vector: Floats) -> list[float]:
    """Return a few projections of a vector of any dimensions: sums of its numbers with fixed signs."""
    bits = np.array([xxhash.xxh3_64_intdigest(b"%d" % place) for place in range(len(vector))], dtype=np.uint64)
    signs = ((bits[:, None] >> np.arange(_PROBE_NUMBERS, dtype=np.uint64)) & np.uint64(1)).astype(np.float64) * 2 - 1
    norm = float(np.linalg.norm(vector)) or 1.0
    return [round(float(number), 4) for number in vector.astype(np.float64) / norm @ signs]
