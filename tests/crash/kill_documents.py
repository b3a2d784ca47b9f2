"""Documents whose every part names its version, an encoder with spans, and what an index must hold of them.

What is expected is worked out here from the documents alone, by plain Python: no part of the store is asked.
"""

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

import mvindex
from mvindex.records import Views

DIM = 8
NAMES = ["plain", "größe", "日本", "עברית", "e\u0301", "🙂", "with space", "a/b", "'quoted\"", "%_like", "Ω", "last"]


class SentenceViews:
    """One view a sentence ("|" ends one), of numbers that fp16 holds as they are: a digest of sentence and title."""

    dim = DIM
    max_views = 8
    fingerprint = "callable:sentence-views"
    spec = {"kind": "callable", "name": "sentence-views", "fingerprint": fingerprint}

    def encode_documents(self, documents, on_progress=None):
        parts = [sentence_views(document) for document in documents]
        starts = np.cumsum([0, *(len(rows) for rows, _ in parts)], dtype=np.int64)
        if on_progress is not None:
            on_progress(len(documents))
        rows, spans = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Views(rows, starts, spans)

    def encode_queries(self, texts):
        return np.array([_numbers(text, "") for text in texts], dtype=np.float32)


def sentence_views(document):
    """The views (k, d) float32 of a text's sentences, and their spans (k, 2)."""
    spans, begin = [], 0
    for sentence in document.text.split("|"):
        spans.append((begin, begin + len(sentence)))
        begin += len(sentence) + 1
    rows = [_numbers(document.text[begin:end], document.title) for begin, end in spans]
    return np.array(rows, dtype=np.float32), np.array(spans, dtype=np.int64)


def _numbers(text, title):
    return [(byte - 128) / 64 for byte in blake2b(f"{title}\n{text}".encode(), digest_size=DIM).digest()]


def doc_id(number):
    return f"{NAMES[number % len(NAMES)]}-{number}"


def document(number, version=1, metadata=None):
    """The document of that number; text, title, metadata and so its views name the version."""
    size = 1 + (3 * number + version) % 5
    sentences = [f"{doc_id(number)} sentence {part}, version {version} – ünïcödé 🙂" for part in range(size)]
    sentences[-1] += " long" * (800 if number % 9 == 4 else 0)  # more than a page of the catalog
    title = "" if number % 3 == 0 else f"Title of {doc_id(number)}, version {version}"
    given = {"group": number % 4, "version": version, "deep": {"list": [1, 2.5, None, True, "ß日"]}}
    return mvindex.Document(doc_id(number), "|".join(sentences), title, given if metadata is None else metadata)


def given_views(document):
    """Ragged views (k, d) for an index of given vectors, any float32 numbers, from the document's version too."""
    seed = int.from_bytes(blake2b(f"{document.id} {document.text}".encode(), digest_size=8).digest(), "little")
    generator = np.random.default_rng(seed)
    return generator.standard_normal((int(generator.integers(1, 7)), DIM)).astype(np.float32)


class Held(NamedTuple):
    """All that an index holds of a document, comparable byte for byte."""

    ordinal: int
    title: str
    text: str
    metadata: str
    spans: tuple[tuple[int, int], ...]
    views: bytes


class State(NamedTuple):
    """The documents of an index, by id, and the ordinal that the next new one gets."""

    next_ordinal: int = 0
    documents: dict[str, Held] = {}

    def added(self, documents: Iterable[mvindex.Document], view_type: str | None = None) -> "State":
        """The state with these documents in, known ids replaced. view_type: of given views; None: they are encoded."""
        held, next_ordinal = dict(self.documents), self.next_ordinal
        for item in documents:
            known = held.get(item.id)
            held[item.id] = _held(item, next_ordinal if known is None else known.ordinal, view_type)
            next_ordinal += known is None
        return State(next_ordinal, held)

    def without(self, numbers: Iterable[int]) -> "State":
        """The state with the documents of these numbers deleted."""
        gone = {doc_id(number) for number in numbers}
        return State(self.next_ordinal, {key: held for key, held in self.documents.items() if key not in gone})

    def updated(self, number: int, metadata: dict) -> "State":
        """The state with other metadata for one document."""
        held = self.documents[doc_id(number)]._replace(metadata=dumped(metadata))
        return State(self.next_ordinal, {**self.documents, doc_id(number): held})


def dumped(metadata):
    return json.dumps(dict(metadata), sort_keys=True, ensure_ascii=False)


def _held(item, ordinal, view_type):
    if view_type is None:
        rows, spans = sentence_views(item)
        packed = rows.astype("<f2")
    else:
        packed = given_views(item).astype("<f4" if view_type == "fp32" else "<f2")
        spans = np.full((len(packed), 2), -1)
    return Held(
        ordinal, item.title, item.text, dumped(item.metadata), tuple(map(tuple, spans.tolist())), packed.tobytes()
    )
