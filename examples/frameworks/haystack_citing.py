"""Answer from a Haystack pipeline that cites the sentence, not the passage.

No network, no LLM: a stub writes the answer.

pip install 'mvindex[haystack]'
"""

import re
import tempfile
from pathlib import Path

from haystack import Document, Pipeline, component

from mvindex_connectors.frameworks.haystack import MVIndexDocumentStore, MVIndexTextRetriever
from mvindex_connectors.frameworks.views import SnippetEncoder

DOCUMENTS = [
    Document(
        id="oil",
        content="The embargo began in October 1973. By March 1974 the price of oil had risen to $12 a barrel. "
        "It caused a shock to the global economy.",
    ),
    Document(
        id="plague",
        content="The Black Death reached Crimea by 1343. It killed a third of Europe's people. "
        "The world's population recovered in the 17th century.",
    ),
]


def word_counts(texts: list[str]) -> list[list[float]]:
    """Return word counts, in place of a model; any embedder will do. Without encoder= mvindex encodes itself."""
    rows = []
    for text in texts:
        counts = [0.0] * 512
        for word in re.findall(r"\w+", text.lower()):
            counts[sum(ord(char) ** 2 for char in word) % 512] += 1
        rows.append(counts)
    return rows


@component
class StubGenerator:
    """Stand in for an LLM: quote the sentence that was found, and its place."""

    @component.output_types(answer=str)
    def run(self, question: str, documents: list[Document]) -> dict:
        cited = documents[0].meta["mvindex"]
        begin, end = cited["snippet_span"]
        return {"answer": f"{question}\n  {cited['snippet']} [{documents[0].id}, characters {begin}-{end}]"}


def main() -> None:
    """Print two answers."""
    with tempfile.TemporaryDirectory() as folder:
        store = MVIndexDocumentStore(Path(folder) / "corpus.mvx", encoder=SnippetEncoder(word_counts, name="words"))
        store.write_documents(DOCUMENTS)
        pipeline = Pipeline()
        pipeline.add_component("retriever", MVIndexTextRetriever(store, top_k=2))
        pipeline.add_component("generator", StubGenerator())
        pipeline.connect("retriever.documents", "generator.documents")
        for question in ("What caused a shock to the economy?", "Who was killed, a third of Europe's people?"):
            answered = pipeline.run({"retriever": {"query": question}, "generator": {"question": question}})
            print(answered["generator"]["answer"])
        store.close()


if __name__ == "__main__":
    main()
