"""Indexes of others, opened as they are: a Faiss file, or a collection in Milvus, with one row for each vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mvindex.plugins import lazy_names

if TYPE_CHECKING:
    from mvindex_connectors.adopted.faiss_file import adopt_faiss
    from mvindex_connectors.adopted.milvus_rows import adopt_milvus
    from mvindex_connectors.adopted.sidecar import AdoptReport, sync_milvus

__all__ = ["AdoptReport", "adopt_faiss", "adopt_milvus", "sync_milvus"]

# Loaded on first use: the help of all commands imports the package.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AdoptReport": "sidecar",
        "adopt_faiss": "faiss_file",
        "adopt_milvus": "milvus_rows",
        "sync_milvus": "sidecar",
    },
)
