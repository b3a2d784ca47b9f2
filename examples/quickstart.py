"""Make an index, add documents, search it by text with a filter, and see which view answered."""

import tempfile
from pathlib import Path

import mvindex

DOCUMENTS = [
    mvindex.Document(
        "oil",
        "The embargo began in October 1973. By March 1974 the price of oil had risen to $12 a barrel. "
        "It caused a shock to the global economy.",
        title="1973 oil crisis",
        metadata={"year": 1973},
    ),
    mvindex.Document(
        "plague",
        "The Black Death reached Crimea by 1343. It killed a third of Europe's people. "
        "The world's population recovered in the 17th century.",
        title="Black Death",
        metadata={"year": 1343},
    ),
]


def main() -> None:
    """Ingest the sample, search it and print the results."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mvindex.create(Path(folder) / "quick.mvx", encoder="minilm-views") as index,
    ):
        print(index.add(DOCUMENTS))
        for question in ("how expensive was oil?", "when did the plague come to Crimea?"):
            result = index.search(question, top_k=1)
            hit = result.hits[0]
            print(f"{question} -> {hit.id} ({result.mode}, exact={result.exact}): {hit.citation.text}")
        recent = index.search("disaster", top_k=2, filter={"year": {"gte": 1900}})
        print("since 1900:", [hit.id for hit in recent.hits])


if __name__ == "__main__":
    main()
