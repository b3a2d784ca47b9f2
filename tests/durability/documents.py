"""Documents whose every part names its version, an encoder with spans, and what an index must store of them.

The expected values are computed here from the documents, in plain Python: no part of the store is used.
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
    """Encode one view per sentence ("|" ends one): a digest of sentence and title, exact in fp16."""

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


class ReversedViews(SentenceViews):
    """Another encoder: the numbers of SentenceViews, the last first."""

    fingerprint = "callable:reversed-views"
    spec = {"kind": "callable", "name": "reversed-views", "fingerprint": fingerprint}

    def encode_documents(self, documents, on_progress=None):
        views = super().encode_documents(documents, on_progress)
        return Views(views.rows[:, ::-1].copy(), views.starts, views.spans)

    def encode_queries(self, texts):
        return super().encode_queries(texts)[:, ::-1].copy()


def sentence_views(document):
    """Return the views (k, d) float32 of the sentences of a text, and their spans (k, 2)."""
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
    """Return the document of that number; its text, title, metadata and so its views name the version."""
    size = 1 + (3 * number + version) % 5
    sentences = [f"{doc_id(number)} sentence {part}, version {version} – ünïcödé 🙂" for part in range(size)]
    sentences[-1] += " long" * (800 if number % 9 == 4 else 0)  # more than a page of the catalog
    title = "" if number % 3 == 0 else f"Title of {doc_id(number)}, version {version}"
    given = {"group": number % 4, "version": version, "deep": {"list": [1, 2.5, None, True, "ß日"]}}
    return mvindex.Document(doc_id(number), "|".join(sentences), title, given if metadata is None else metadata)


def given_views(document):
    """Return ragged views (k, d) float32 for an index of given vectors; they depend on the version of the document."""
    seed = int.from_bytes(blake2b(f"{document.id} {document.text}".encode(), digest_size=8).digest(), "little")
    generator = np.random.default_rng(seed)
    return generator.standard_normal((int(generator.integers(1, 7)), DIM)).astype(np.float32)


class Stored(NamedTuple):
    """Everything that an index stores of a document, comparable byte for byte."""

    ordinal: int
    title: str
    text: str
    metadata: str
    spans: tuple[tuple[int, int], ...]
    views: bytes


class State(NamedTuple):
    """The documents of an index by id, and the ordinal of the next new one."""

    next_ordinal: int = 0
    documents: dict[str, Stored] = {}

    def added(self, documents: Iterable[mvindex.Document], view_type: str | None = None) -> "State":
        """Add documents; known ids are replaced. view_type: the type of given views, None if encoded."""
        found, next_ordinal = dict(self.documents), self.next_ordinal
        for item in documents:
            known = found.get(item.id)
            found[item.id] = _stored(item, next_ordinal if known is None else known.ordinal, view_type)
            next_ordinal += known is None
        return State(next_ordinal, found)

    def without(self, numbers: Iterable[int]) -> "State":
        """Return the state without the documents of these numbers."""
        return self.without_ids(map(doc_id, numbers))

    def without_ids(self, ids: Iterable[str]) -> "State":
        """Return the state with the documents of these ids deleted."""
        gone = set(ids)
        return State(self.next_ordinal, {key: each for key, each in self.documents.items() if key not in gone})

    def reembedded(self) -> "State":
        """Return the state with the views of ReversedViews in place of those of SentenceViews."""
        views = {key: np.frombuffer(each.views, "<f2").reshape(-1, DIM) for key, each in self.documents.items()}
        changed = {key: each._replace(views=views[key][:, ::-1].tobytes()) for key, each in self.documents.items()}
        return State(self.next_ordinal, changed)

    def updated(self, number: int, metadata: dict) -> "State":
        """Return the state with new metadata for one document."""
        changed = self.documents[doc_id(number)]._replace(metadata=dumped(metadata))
        return State(self.next_ordinal, {**self.documents, doc_id(number): changed})


def dumped(metadata):
    return json.dumps(dict(metadata), sort_keys=True, ensure_ascii=False)


def _stored(item, ordinal, view_type):
    if view_type is None:
        rows, spans = sentence_views(item)
        packed = rows.astype("<f2")
    else:
        packed = given_views(item).astype("<f4" if view_type == "fp32" else "<f2")
        spans = np.full((len(packed), 2), -1)
    return Stored(
        ordinal, item.title, item.text, dumped(item.metadata), tuple(map(tuple, spans.tolist())), packed.tobytes()
    )
