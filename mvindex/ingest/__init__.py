"""Documents into a store, chunk by chunk."""

from mvindex.ingest.pipeline import (
    CHUNK_CHARS,
    CHUNK_DOCUMENTS,
    Chunk,
    Encode,
    Entry,
    IngestHooks,
    IngestReport,
    SeenIds,
    content_hash,
    ingest,
    ingest_chunk,
    read_chunks,
    refuse_duplicate,
)

__all__ = [
    "CHUNK_CHARS",
    "CHUNK_DOCUMENTS",
    "Chunk",
    "Encode",
    "Entry",
    "IngestHooks",
    "IngestReport",
    "SeenIds",
    "content_hash",
    "ingest",
    "ingest_chunk",
    "read_chunks",
    "refuse_duplicate",
]
