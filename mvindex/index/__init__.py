"""The public object: an index over a store, an engine and an encoder."""

from mvindex.index.index import QUERY_BATCH, Index

__all__ = ["QUERY_BATCH", "Index"]
