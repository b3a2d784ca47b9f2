"""The intent of a commit: its documents, written before it, so that the next writer can count them after a kill."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mvindex.records import Ints
from mvindex_connectors.milvus.layout import INTENT_KEY, MAX_INTENTS, one_of, special_record
from mvindex_connectors.milvus.reader import Reader
from mvindex_connectors.milvus.term_counts import CountChange, TermTable, first_keys

# Documents of one record.
INTENT_DOCUMENTS = 2_000


class Intent(NamedTuple):
    """The plan of a commit, written just before it.

    Attributes:
        follows: The version of the settings before the commit.
        documents: (n, 3), of each document its number, its version before (-1: none) and after (-1: deleted).
        longest, means: Those of TermState after the commit.

    """

    follows: int
    documents: Ints
    longest: int
    means: tuple[float, float]

    def records(self) -> list[dict[str, Any]]:
        """Return the records of the intent; ValueError where it has too many documents."""
        parts = [
            self.documents[begin : begin + INTENT_DOCUMENTS]
            for begin in range(0, max(len(self.documents), 1), INTENT_DOCUMENTS)
        ]
        if len(parts) > MAX_INTENTS:
            raise ValueError(f"intent: expected at most {MAX_INTENTS * INTENT_DOCUMENTS:,} documents")
        return [
            special_record(
                INTENT_KEY - number,
                json.dumps(
                    {
                        "follows": self.follows,
                        "parts": len(parts),
                        "longest": self.longest,
                        "means": list(self.means),
                        "documents": base64.b64encode(zlib.compress(part.astype("<i8").tobytes())).decode(),
                    }
                ),
            )
            for number, part in enumerate(parts)
        ]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Intent:
        """Return the intent of its records' texts, in order."""
        notes = [json.loads(text) for text in texts]
        parts = [np.frombuffer(zlib.decompress(base64.b64decode(note["documents"])), "<i8") for note in notes]
        first = notes[0]
        means = (float(first["means"][0]), float(first["means"][1]))
        return cls(int(first["follows"]), np.concatenate(parts).reshape(-1, 3), int(first["longest"]), means)


def read_intent(reader: Reader, version: int, first: Mapping[str, Any] | None = None) -> Intent | None:
    """Return the intent of the unfinished commit; None where there is none.

    Args:
        reader: Reads the records.
        version: The version of the settings.
        first: The first record of the intent, where it was read with the settings.

    """
    if first is None:
        first = next(iter(reader.query(one_of("pk", [INTENT_KEY]), ("pk", "text"), "reading what is written")), None)
    if first is None or (note := json.loads(first["text"]))["follows"] != version:
        return None
    keys = [INTENT_KEY - part for part in range(1, int(note["parts"]))]
    others = reader.query(one_of("pk", keys), ("pk", "text"), "reading what is written") if keys else []
    texts = [row["text"] for row in sorted(others, key=lambda row: -int(row["pk"]))]
    return Intent.parse([first["text"], *texts])


def pending_change(reader: Reader, table: TermTable, intent: Intent) -> CountChange:
    """Return the change of the counts by those documents of an unfinished commit that are stored already."""
    numbers, before, after = intent.documents.T
    found = reader.records(numbers.tolist(), ("pk", "version"))
    now = np.array([int(found[number]["version"]) if number in found else -1 for number in numbers.tolist()])
    is_done = now == after
    added, removed = is_done & (after >= 0), is_done & (before >= 0)
    return CountChange.of(
        int(np.count_nonzero(added) - np.count_nonzero(removed)),
        table.documents(first_keys(numbers[added], after[added])),
        table.documents(first_keys(numbers[removed], before[removed])),
    )
