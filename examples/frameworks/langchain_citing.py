"""Answer from a LangChain chain that cites the sentence, not the passage.

No network, no LLM: a stub writes the answer.

pip install 'mvindex[langchain]'
"""

import tempfile
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from mvindex_connectors.frameworks.langchain import MVIndexVectorStore

DOCUMENTS = [
    Document(
        "The embargo began in October 1973. By March 1974 the price of oil had risen to $12 a barrel. "
        "It caused a shock to the global economy.",
        id="oil",
    ),
    Document(
        "The Black Death reached Crimea by 1343. It killed a third of Europe's people. "
        "The world's population recovered in the 17th century.",
        id="plague",
    ),
]


class WordEmbeddings(Embeddings):
    """Word counts, in place of a model; any Embeddings will do. Without one mvindex encodes itself."""

    size = 512

    def embed_query(self, text: str) -> list[float]:
        counts = [0.0] * self.size
        for word in text.lower().split():
            counts[sum(ord(char) ** 2 for char in word.strip(".,?'$")) % self.size] += 1
        return counts

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def stub_generator(found: dict) -> str:
    """Stand in for an LLM: quote the sentence that was found, and its place."""
    best = found["context"][0]
    cited = best.metadata["mvindex"]
    begin, end = cited["snippet_span"]
    return f"{found['question']}\n  {cited['snippet']} [{best.id}, characters {begin}-{end}]"


def main() -> None:
    """Print two answers."""
    with tempfile.TemporaryDirectory() as folder:
        store = MVIndexVectorStore.from_documents(DOCUMENTS, WordEmbeddings(), index=Path(folder) / "corpus.mvx")
        retriever = store.as_retriever(search_kwargs={"k": 2})
        chain = {"context": retriever, "question": RunnablePassthrough()} | RunnableLambda(stub_generator)
        print(chain.invoke("What caused a shock to the economy?"))
        print(chain.invoke("Who was killed, a third of Europe's people?"))
        store.close()


if __name__ == "__main__":
    main()
