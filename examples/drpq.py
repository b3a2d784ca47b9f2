"""Score documents by DRPQ's softmax mean instead of the best view, and see what the temperature does to the weights."""

import tempfile
from pathlib import Path

import mvindex

DOCUMENTS = [
    mvindex.Document(
        "history",
        "Oil lamps were first lit in caves. The embargo made oil four times as expensive. "
        "Whales were hunted for their fat. A refinery was built in Baku.",
    ),
    mvindex.Document(
        "crisis",
        "Oil cost more after the embargo. Petrol prices rose at every station. "
        "Countries paid far more for each barrel of crude.",
    ),
]
QUESTION = "how many times more expensive did the embargo make oil?"


def main() -> None:
    """Print the results of each scoring."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mvindex.create(Path(folder) / "drpq.mvx", encoder="minilm-views", temperature=0.05) as index,
    ):
        index.add(DOCUMENTS)
        print("max:", [(hit.id, round(hit.score, 3)) for hit in index.search(QUESTION).hits])
        for temperature in (1.0, index.temperature):
            result = index.search(QUESTION, scoring="drpq", temperature=temperature)
            print(f"drpq, T = {temperature}:", [(hit.id, round(hit.score, 3)) for hit in result.hits])
            for view in index.explain(QUESTION, "history", scoring="drpq", temperature=temperature):
                print(f"    {view.weight:.2f} x {view.score:.3f}  {view.snippet}")


if __name__ == "__main__":
    main()
