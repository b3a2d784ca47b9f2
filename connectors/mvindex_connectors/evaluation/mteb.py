"""An index as a search model of mteb: its retrieval tasks measure views, terms and their fusion as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mteb.models.model_meta import ModelMeta

import mvindex
from mvindex import Document, __version__
from mvindex.errors import ConfigError, Unsupported
from mvindex.index import Index
from mvindex.search.request import ModeName

if TYPE_CHECKING:
    from typing_extensions import Self

_BATCH = 256


class MTEBSearch:
    """A search model for `mteb.evaluate`, which indexes each corpus and searches it.

    It implements mteb's SearchProtocol. Each corpus goes into an index of its own, in a folder that close() removes.
    """

    def __init__(self, encoder: str = "minilm-views", *, mode: ModeName = "auto", **create_options: Any) -> None:
        """Take what makes the index.

        Args:
            encoder: As for create().
            mode: As for search().
            create_options: Further arguments of create(), such as lexical= or shards=.

        """
        self._encoder, self._mode, self._options = encoder, mode, create_options
        self._folder = tempfile.TemporaryDirectory(prefix="mvindex-mteb-")
        self._index: Index | None = None
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the index and remove it."""
        if self._index is not None:
            self._index.close()
            self._index = None
        self._folder.cleanup()

    def index(self, corpus: Any, **_others: Any) -> None:
        """Index a corpus: a datasets.Dataset with the columns id, text and, optionally, title.

        Raises ConfigError for a corpus without texts.
        """
        if "text" not in corpus.column_names:
            raise ConfigError(f"corpus: expected a column text, got {', '.join(corpus.column_names)}")
        if self._index is not None:
            self._index.close()
        self._count += 1
        place = Path(self._folder.name) / f"{self._count}.mvx"
        self._index = mvindex.create(place, encoder=self._encoder, **self._options)
        self._index.add(_documents(corpus))

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Any = None, **_others: Any
    ) -> dict[str, dict[str, float]]:
        """Return the scores of the best documents of each query, by query id and document id.

        Raises ConfigError before a corpus is indexed, and Unsupported for a reranking task, which names its candidates.
        """
        if self._index is None:
            raise ConfigError("expected index() before search()")
        if top_ranked is not None:
            raise Unsupported("mvindex searches the whole corpus; a reranking task of mteb names its own candidates")
        found: dict[str, dict[str, float]] = {}
        for begin in range(0, len(queries), _BATCH):
            rows = queries[begin : begin + _BATCH]
            instructions = rows.get("instruction") or [None] * len(rows["id"])
            texts = [
                text if not instruction else f"{instruction} {text}"
                for text, instruction in zip(rows["text"], instructions, strict=True)
            ]
            results = self._index.search(texts, top_k, mode=self._mode, fields=[])
            for query_id, result in zip(rows["id"], results, strict=True):
                found[str(query_id)] = {hit.id: float(hit.score) for hit in result.hits}
        return found

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """The name that mteb writes beside the results: encoder and mode, and the version of mvindex."""
        name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in str(self._encoder))
        return ModelMeta.create_empty(
            {"name": f"mvindex/{name}-{self._mode}", "revision": __version__, "framework": ["PyTorch"]}
        )


def _documents(corpus: Any) -> Iterator[Document]:
    """Yield the documents of a corpus; one without visible text is its title."""
    for row in corpus:
        title, text = row.get("title") or "", row["text"] or ""
        if not text.strip():
            title, text = "", title
        if text.strip():
            yield Document(str(row["id"]), text, title=title)
