"""The public object: an index over a store, a search engine and an encoder."""

from mvindex.index.index import Index, embedded_store_of, search_engine_of, store_of
from mvindex.index.protocol import IndexProtocol

__all__ = ["Index", "IndexProtocol", "embedded_store_of", "search_engine_of", "store_of"]
