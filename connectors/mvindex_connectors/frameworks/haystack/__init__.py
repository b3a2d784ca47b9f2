"""An index as Haystack's document store, with two retrievers; see docs/how-to/haystack.md."""

from mvindex.plugins import require

# Before the modules that import it: names the command that installs what is missing.
require("haystack", "haystack", "the Haystack store")

from mvindex_connectors.frameworks.haystack.document_store import MVIndexDocumentStore
from mvindex_connectors.frameworks.haystack.retrievers import MVIndexEmbeddingRetriever, MVIndexTextRetriever

__all__ = ["MVIndexDocumentStore", "MVIndexEmbeddingRetriever", "MVIndexTextRetriever"]
