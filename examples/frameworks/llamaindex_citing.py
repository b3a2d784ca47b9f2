"""Answer from a LlamaIndex query engine that cites the sentence, not the passage.

No network, no LLM: a stub writes the answer.

pip install 'mvindex[llamaindex]'
"""

import tempfile
from pathlib import Path

from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.response.schema import Response
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import TextNode

from mvindex_connectors.frameworks.llamaindex import MVIndexVectorStore

NODES = [
    TextNode(
        id_="oil",
        text="The embargo began in October 1973. By March 1974 the price of oil had risen to $12 a barrel. "
        "It caused a shock to the global economy.",
    ),
    TextNode(
        id_="plague",
        text="The Black Death reached Crimea by 1343. It killed a third of Europe's people. "
        "The world's population recovered in the 17th century.",
    ),
]


class WordEmbedding(BaseEmbedding):
    """Word counts, in place of a model; any BaseEmbedding will do. Without one mvindex encodes itself."""

    size: int = 512

    def _get_text_embedding(self, text: str) -> list[float]:
        counts = [0.0] * self.size
        for word in text.lower().split():
            counts[sum(ord(char) ** 2 for char in word.strip(".,?'$")) % self.size] += 1
        return counts

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


class CitingEngine(CustomQueryEngine):
    """Stand in for an LLM: quote the sentence that was found, and its place."""

    retriever: BaseRetriever

    def custom_query(self, query_str: str) -> Response:
        """Return the answer, with the nodes that it cites."""
        found = self.retriever.retrieve(query_str)
        cited = found[0].metadata["mvindex"]
        begin, end = cited["snippet_span"]
        text = f"{query_str}\n  {cited['snippet']} [{found[0].node_id}, characters {begin}-{end}]"
        return Response(text, source_nodes=found)


def main() -> None:
    """Print two answers."""
    with tempfile.TemporaryDirectory() as folder:
        store = MVIndexVectorStore(Path(folder) / "corpus.mvx", embed_model=WordEmbedding())
        context = StorageContext.from_defaults(vector_store=store)
        # The store embeds snippets itself; what LlamaIndex embeds is not used.
        index = VectorStoreIndex(NODES, storage_context=context, embed_model=MockEmbedding(embed_dim=1))
        engine = CitingEngine(retriever=index.as_retriever(similarity_top_k=2))
        print(engine.query("What caused a shock to the economy?"))
        print(engine.query("Who was killed, a third of Europe's people?"))
        store.close()


if __name__ == "__main__":
    main()
