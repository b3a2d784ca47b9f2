"""Run files: what is written, a plain reader of TREC's six columns reads as it was."""

import io
from pathlib import Path

import numpy as np

from fuzz_parts.target import Choices, Limits, require
from mvindex.errors import QueryError
from mvindex.measure.compare import RunWriter
from mvindex.records import Hit

_WORDS = (
    "q1",
    "d1",
    "d2",
    "d 3",
    "",
    " d",
    "d\t",
    "\u00a0",
    "d\u2028x",
    "é",
    "d\n",
    "\x1c",
    "\x85",
    "Q0",
    "d\u200b",
    "\ufeffd",
)
_SCORES = (
    1.0, 0.5, 0.1, 0.1 + 1e-9, -0.0, 0.0, -1.0, float("nan"), float("inf"), 3.4028234663852886e38, 3.5e38, 1e-45,
    -1e-50, 2.0**-149, 16777217.0, -3.4028234663852886e38,
)  # fmt: skip


def open_target(name: str, folder: Path):
    return Trec()


class Trec(Limits):
    """The hits of a few questions, drawn from words and scores on the edge of what a run can hold."""

    name = "trec"
    refusals = (QueryError,)
    tokens = ()

    def seeds(self) -> list[bytes]:
        return (
            [bytes([0, 2, 1, 2, 0, 1, 1])]
            + [bytes([number, 3, 0, 1, 1, 0, 2, 1, 3, 2]) for number in range(4)]
            + [bytes(range(64)), b"\1\2" * 20]
        )

    def check(self, data: bytes) -> None:
        choices = Choices(data)
        file, wanted = io.StringIO(newline=""), []
        run = RunWriter(file, "run", "tag")
        try:
            while not choices.is_spent:
                question = choices.one_of(_WORDS)
                hits = _hits(choices)
                run.add(question, hits)
                wanted += [(question, hit.id, rank, np.float32(hit.score)) for rank, hit in enumerate(hits, start=1)]
        finally:
            require(_plain(file.getvalue()) == wanted, "the run", file.getvalue(), "wanted", wanted)


def _hits(choices: Choices) -> list[Hit]:
    ids = [choices.one_of(_WORDS) for _ in range(choices.below(5))]
    scores = [choices.one_of(_SCORES) for _ in ids]
    if choices.below(4):
        scores.sort(reverse=True)
    return [Hit(doc_id, score, 0, None, None, "", "", {}) for doc_id, score in zip(ids, scores, strict=True)]


def _plain(text: str) -> list[tuple]:
    rows = [line.split() for line in text.split("\n")[:-1]]
    require(all(len(row) == 6 and row[1] == "Q0" and row[5] == "tag" for row in rows), "a line of the run:", rows)
    return [(question, doc_id, int(rank), np.float32(score)) for question, _, doc_id, rank, score, _ in rows]
