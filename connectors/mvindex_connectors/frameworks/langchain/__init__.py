"""An index as LangChain's vector store and retriever; see docs/how-to/langchain.md."""

from mvindex.plugins import require

# Before the modules that import it: names the command that installs what is missing.
require("langchain_core", "langchain", "the LangChain store")

from mvindex_connectors.frameworks.langchain.retriever import MVIndexRetriever
from mvindex_connectors.frameworks.langchain.vector_store import MVIndexVectorStore, relevance_of_cosine

__all__ = ["MVIndexRetriever", "MVIndexVectorStore", "relevance_of_cosine"]
