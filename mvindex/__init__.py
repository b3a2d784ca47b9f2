"""mvindex: multi-view dense retrieval. A document has several vectors; a search gives k distinct documents.

import mvindex

with mvindex.create("corpus.mvx", encoder="minilm-views") as index:
    index.add([mvindex.Document("1", "The oil crisis began in 1973. It ended in March 1974.")])
    print(index.search("when did the oil crisis end?", top_k=1).hits[0].citation.text)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mvindex.processor import check_machine

check_machine()  # before NumPy is imported

from mvindex.errors import MvindexError  # noqa: E402 - as above
from mvindex.records import Citation, Document, DocumentViews, Hit, QueryGroup, SearchResult, Views, ViewText  # noqa: E402

if TYPE_CHECKING:
    from mvindex.corpus.reader import read_files
    from mvindex.encoder import CallableEncoder, load_encoder
    from mvindex.encoder.sentence_transformers import save_sentence_transformer
    from mvindex.index import Index, IndexProtocol
    from mvindex.index.awaited import AsyncIndex, open_async
    from mvindex.index.factory import create
    from mvindex.index.factory import open_index as open
    from mvindex.io.sync import SyncOptions, SyncReport, sync_folder
    from mvindex.kernels.threads import set_threads
    from mvindex.maintenance.backups import restore
    from mvindex.maintenance.dispatch import repair, salvage, verify

__version__ = "0.3.0"
__all__ = [
    "AsyncIndex",
    "CallableEncoder",
    "Citation",
    "Document",
    "DocumentViews",
    "Hit",
    "Index",
    "IndexProtocol",
    "MvindexError",
    "QueryGroup",
    "SearchResult",
    "SyncOptions",
    "SyncReport",
    "ViewText",
    "Views",
    "create",
    "load_encoder",
    "open",
    "open_async",
    "read_files",
    "repair",
    "restore",
    "salvage",
    "save_sentence_transformer",
    "set_threads",
    "sync_folder",
    "verify",
]

# Loaded on first use, so that `import mvindex` costs little.
_LAZY_EXPORTS = {
    "AsyncIndex": ("mvindex.index.awaited", "AsyncIndex"),
    "CallableEncoder": ("mvindex.encoder", "CallableEncoder"),
    "Index": ("mvindex.index", "Index"),
    "IndexProtocol": ("mvindex.index", "IndexProtocol"),
    "SyncOptions": ("mvindex.io.sync", "SyncOptions"),
    "SyncReport": ("mvindex.io.sync", "SyncReport"),
    "create": ("mvindex.index.factory", "create"),
    "load_encoder": ("mvindex.encoder", "load_encoder"),
    "open": ("mvindex.index.factory", "open_index"),
    "open_async": ("mvindex.index.awaited", "open_async"),
    "read_files": ("mvindex.corpus.reader", "read_files"),
    "repair": ("mvindex.maintenance.dispatch", "repair"),
    "restore": ("mvindex.maintenance.backups", "restore"),
    "salvage": ("mvindex.maintenance.dispatch", "salvage"),
    "save_sentence_transformer": ("mvindex.encoder.sentence_transformers", "save_sentence_transformer"),
    "set_threads": ("mvindex.kernels.threads", "set_threads"),
    "sync_folder": ("mvindex.io.sync", "sync_folder"),
    "verify": ("mvindex.maintenance.dispatch", "verify"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY_EXPORTS[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
