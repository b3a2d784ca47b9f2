"""Move LangChain's MultiVectorRetriever or ParentDocumentRetriever into an index, and compare the parents they return.

No network: the embedding model is the packaged all-MiniLM-L6-v2.

pip install 'mvindex[all,langchain]' langchain-classic langchain-text-splitters
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from langchain_classic.retrievers import MultiVectorRetriever, ParentDocumentRetriever
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.stores import InMemoryStore
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter

import mvindex
from mvindex_connectors.frameworks.langchain import MVIndexVectorStore

# Parents read and added at once.
BATCH = 500
PARENTS = [
    Document(
        "The embargo began in October 1973. By March 1974 the price of oil had risen to $12 a barrel. "
        "It caused a shock to the global economy.",
        metadata={"year": 1973},
    ),
    Document(
        "The Black Death reached Crimea by 1343. It killed a third of Europe's people. "
        "The world's population recovered in the 17th century.",
        metadata={"year": 1343},
    ),
    Document("The pump starts at eight bar. It stops at ten. It is checked daily.", metadata={"year": 2020}),
]
QUESTIONS = ["How expensive was oil?", "How many Europeans died?", "When does the pump stop?", "energy crisis"]


class MiniLM(Embeddings):
    """The packaged all-MiniLM-L6-v2; any Embeddings will do."""

    def __init__(self) -> None:
        self._encoder = mvindex.load_encoder("minilm")

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._encoder.encode_queries(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def children_of(store: VectorStore) -> Iterator[tuple[str, dict]]:
    """Yield the text and the metadata of every child in the vector store."""
    if isinstance(store, InMemoryVectorStore):
        for child in store.store.values():
            yield child["text"], child["metadata"]
    else:  # Chroma
        found = store.get(include=["documents", "metadatas"])
        yield from zip(found["documents"], found["metadatas"], strict=True)


def move(retriever: MultiVectorRetriever, index: mvindex.Index) -> None:
    """Add every parent; children that are no part of its text, such as summaries or questions, become view_texts."""
    texts = defaultdict(list)
    for text, metadata in children_of(retriever.vectorstore):
        texts[metadata[retriever.id_key]].append(text)
    keys = list(retriever.docstore.yield_keys())
    for begin in range(0, len(keys), BATCH):
        some = keys[begin : begin + BATCH]
        found = zip(some, retriever.docstore.mget(some), strict=True)
        index.add(
            mvindex.Document(
                key,
                parent.page_content,
                metadata=parent.metadata,
                view_texts=[text for text in texts[key] if text not in parent.page_content],
            )
            for key, parent in found
            if parent is not None
        )


def make_retriever(store: VectorStore) -> ParentDocumentRetriever:
    """Return what there is to be moved: parents, sentences as children, and a hypothetical question."""
    splitter = RecursiveCharacterTextSplitter(chunk_size=60, chunk_overlap=0, separators=[". "])
    retriever = ParentDocumentRetriever(
        vectorstore=store, docstore=InMemoryStore(), child_splitter=splitter, search_kwargs={"k": 2}
    )
    ids = ["oil", "plague", "pump"]
    retriever.add_documents(PARENTS, ids=ids)
    question = Document("What started the energy crisis?", metadata={retriever.id_key: "oil"})
    retriever.vectorstore.add_documents([question])
    return retriever


def main() -> None:
    """Print for each question what both return."""
    before = make_retriever(InMemoryVectorStore(MiniLM()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "docs.mvx"
        with mvindex.create(path, encoder="minilm-views") as index:
            move(before, index)
        store = MVIndexVectorStore(path)
        after = store.as_retriever(search_kwargs={"k": 2})
        for question in QUESTIONS:
            old, new = before.invoke(question), after.invoke(question)
            is_same = old[0].page_content == new[0].page_content
            print(f"{question} {len(old)} and {len(new)} parents, same first: {is_same}")
        store.close()


if __name__ == "__main__":
    main()
