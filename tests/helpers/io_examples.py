"""Indexes of real passages with titles, metadata, spans and several views, and how two of them are compared."""

import csv
import re
from itertools import islice
from pathlib import Path

import numpy as np

import mvindex
from mvindex.index import store_of
from mvindex.records import Views

PASSAGES = Path(__file__).parents[2] / "examples" / "squad" / "passages.tsv"
DIM = 12


class SentenceEncoder:
    """A view for each sentence, at most four, with its span; its vector depends on the words alone."""

    dim = DIM
    max_views = 4
    fingerprint = "sentences-for-tests"
    spec = {"kind": "callable", "name": "sentences", "fingerprint": fingerprint}

    def encode_documents(self, documents, on_progress=None):
        rows, counts, spans = [], [], []
        for document in documents:
            found = [match.span() for match in islice(re.finditer(r"[^.!?]+[.!?]?", document.text), 4)] or [(-1, -1)]
            rows += [self._vector(document.text[begin:end]) for begin, end in found]
            spans += found
            counts.append(len(found))
            if on_progress is not None:
                on_progress(1)
        return Views(np.array(rows, dtype=np.float32), np.append(0, np.cumsum(counts)), np.array(spans, dtype=np.int64))

    def encode_queries(self, texts):
        return np.array([self._vector(text) for text in texts], dtype=np.float32)

    def _vector(self, text):
        return np.random.default_rng(list(text.encode())[:40] + [len(text)]).standard_normal(DIM)


def passages(count):
    """Real passages, with metadata and text of many scripts."""
    with open(PASSAGES, encoding="utf-8", newline="") as file:
        rows = list(islice(csv.DictReader(file, delimiter="\t"), count))
    return [
        mvindex.Document(
            f"№{row['id']}" if number % 5 == 0 else row["id"],
            row["text"] + (" Ωmega 日本語. \u2028 end\ttab" if number % 3 == 0 else ""),
            row["title"] if number % 2 else "",
            {"n": number, "tags": ["ä", None, {"x": 1.5}]} if number % 4 else {},
        )
        for number, row in enumerate(rows)
    ]


def made_index(path, *, count=60, dtype="fp16", shards=None, lexical=None):
    """An index with gaps among its ordinals, and a document that was replaced."""
    documents = passages(count)
    with mvindex.create(path, encoder=SentenceEncoder(), dtype=dtype, shards=shards, lexical=lexical) as index:
        index.add(documents)
        index.delete(ids=[documents[3].id, documents[7].id])
        index.add([mvindex.Document(documents[9].id, "It was replaced. Twice!", "new", {"r": True})])
        index.add([mvindex.Document("only a title", "", "A title. Alone")])
    return path


def stored(index):
    """All that an index holds, by ordinal: nothing of it may change on the way."""
    rows = []
    for batch in store_of(index).batches(1024):
        starts = batch.views.starts
        for number, document in enumerate(batch.documents):
            own = slice(starts[number], starts[number + 1])
            views = batch.views.rows[own].astype("<f4").tobytes()
            rows.append((int(batch.ordinals[number]), document, views, batch.views.spans[own].tolist()))
    return sorted(rows, key=lambda row: row[0])
