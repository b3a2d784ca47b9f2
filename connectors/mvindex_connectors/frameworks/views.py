"""One view for each snippet of a text, for models that give one vector per text."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mvindex.arrays import as_numbers
from mvindex.corpus.text.sentences import SPLITTER_VERSION, split_snippets
from mvindex.encoder import CallableEncoder
from mvindex.errors import DocumentError, EncoderError
from mvindex.records import CountCallback, Document, Floats, Span, Views, check_count, no_progress

T = TypeVar("T")
# Fewer documents show no bar unless it is asked for.
_LEAST = 50
# Texts embedded at once: a few calls a thousand documents, so that progress shows.
_PART = 512


def check_items(name: str, items: Iterable[T], kind: type[T]) -> list[T]:
    """Return the items as a list; DocumentError unless each is of this kind. name: what messages call them."""
    if isinstance(items, kind) or not isinstance(items, Iterable):
        raise DocumentError(f"{name}: expected several {kind.__name__}, got {type(items).__name__}")
    listed = list(items)
    for number, item in enumerate(listed, start=1):
        if not isinstance(item, kind):
            raise DocumentError(f"{name}: expected {kind.__name__}, got {type(item).__name__} as number {number}")
    return listed


@contextmanager
def show_added(total: int, is_wanted: bool | None) -> Iterator[CountCallback]:
    """Yield a callback that takes numbers of further documents done, and shows them on stderr.

    Args:
        total: Number of documents.
        is_wanted: None shows them on a terminal, for 50 documents or more.

    """
    is_terminal = sys.stderr.isatty()
    if is_wanted is None:
        is_wanted = is_terminal and total >= _LEAST
    if not is_wanted:
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # A terminal is left as it was; elsewhere the last state is the one line that is written.
    with Progress(*columns, console=Console(stderr=True), transient=is_terminal) as progress:
        task = progress.add_task("adding documents", total=total)
        yield lambda count: progress.update(task, advance=count)


class SnippetEncoder(CallableEncoder):
    """An index's encoder made of any function from texts to vectors: each snippet of a document becomes a unit view.

    The view of a document with an empty text stands for its title.
    """

    def __init__(
        self,
        function: Callable[[list[str]], Any],
        *,
        name: str,
        query_function: Callable[[list[str]], Any] | None = None,
        max_snippets: int = 8,
    ) -> None:
        """Make an encoder.

        Args:
            function: A list of n texts -> n vectors.
            name: Name of the model; an index accepts no encoder of another name.
            query_function: The same for queries; the function by default.
            max_snippets: Most snippets, hence views, of a document.

        """
        full_name = f"{name}+{max_snippets}-snippets-{SPLITTER_VERSION}"
        check_count("max_snippets", max_snippets)
        super().__init__(function, query_function=query_function, name=full_name)
        self._max_snippets = max_snippets

    @property
    def max_views(self) -> int | None:
        """The most views of a document."""
        return self._max_snippets

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return the views of the documents with their spans; the function is called once."""
        spans = [spans_of(document.text, self._max_snippets) if document.text else [(-1, -1)] for document in documents]
        texts = [
            Document(f"{document.id[:900]}, snippet {slot}", document.text[begin:end] or document.title)
            for document, own in zip(documents, spans, strict=True)
            for slot, (begin, end) in enumerate(own)
        ]
        rows = super().encode_documents(texts).rows
        if on_progress is not None:
            on_progress(len(documents))
        starts = np.cumsum([0, *map(len, spans)], dtype=np.int64)
        all_spans = np.array([span for own in spans for span in own], dtype=np.int64).reshape(-1, 2)
        return Views(unit_rows(rows, len(texts)) if len(rows) else rows, starts, all_spans)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return a unit vector per text, (q, dim) float32."""
        rows = super().encode_queries(texts)
        return unit_rows(rows, len(texts)) if len(rows) else rows


def spans_of(text: str, max_snippets: int) -> list[Span]:
    """Return the spans of a text's views: its snippets, or the whole text where it has fewer than two."""
    spans = split_snippets(text, max_snippets) if max_snippets > 1 else []
    return spans if len(spans) > 1 else [(0, len(text))]


def embeddings_of(vectors: Any) -> npt.NDArray[Any]:
    """Return what an embedding model or a caller gave as an array of numbers; EncoderError for anything else."""
    try:
        return as_numbers(vectors)
    except ValueError as err:
        raise EncoderError(f"embeddings: {err}") from err


def unit_rows(vectors: Any, count: int) -> Floats:
    """Return vectors scaled to length 1, so that scores are cosines.

    Args:
        vectors: (count, d) numbers; a zero vector stays zero.
        count: Number of texts.

    Raises:
        EncoderError: For another shape.

    """
    wide = embeddings_of(vectors).astype(np.float64)
    if wide.ndim != 2 or len(wide) != count:
        raise EncoderError(f"embeddings: expected shape ({count}, d), one for each text, got {wide.shape}")
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is named where it is stored or searched
        lengths = np.linalg.norm(wide, axis=1, keepdims=True)
        return (wide / np.where(lengths == 0, 1, lengths)).astype(np.float32)


async def embed_in_parts(
    embed: Callable[[list[str]], Awaitable[Floats]], texts: list[str], sizes: Sequence[int], on_progress: CountCallback
) -> Floats:
    """Return a row per text, embedded some at a time.

    Args:
        embed: n texts -> (n, d).
        texts: The texts of all documents, one document after the other.
        sizes: The number of texts of each document.
        on_progress: Called with numbers of further documents whose texts are all embedded.

    """
    ends, done = np.cumsum(sizes), 0
    rows = []
    for begin in range(0, len(texts), _PART):
        rows.append(await embed(texts[begin : begin + _PART]))
        finished = int(np.searchsorted(ends, begin + len(rows[-1]), side="right"))
        on_progress(finished - done)
        done = finished
    return np.concatenate(rows)


def group_rows(rows: Floats, sizes: Sequence[int]) -> list[Floats]:
    """Return the rows cut into consecutive groups of these sizes: the views of one document each."""
    return np.split(rows, np.cumsum(sizes)[:-1])
