"""An index as LlamaIndex's vector store; see docs/how-to/llamaindex.md."""

from mvindex.plugins import require

# Before the modules that import it: names the command that installs what is missing.
require("llama_index.core", "llamaindex", "the LlamaIndex store")

from mvindex_connectors.frameworks.llamaindex.vector_store import MVIndexVectorStore

__all__ = ["MVIndexVectorStore"]
