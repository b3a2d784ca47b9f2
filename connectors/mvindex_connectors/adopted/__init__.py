"""Indexes of others, opened as they are: a Faiss file, or a collection in Milvus, with one row for each vector."""

from mvindex_connectors.adopted.faiss_file import adopt_faiss
from mvindex_connectors.adopted.milvus_rows import adopt_milvus
from mvindex_connectors.adopted.sidecar import AdoptReport, sync_milvus

__all__ = ["AdoptReport", "adopt_faiss", "adopt_milvus", "sync_milvus"]
