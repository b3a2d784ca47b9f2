"""Chroma, embedded: HNSW over views by its defaults (M 16, ef_construction 100, ef_search 100), a row a view."""

import functools
import sys

import chromadb
from measuring import RISING, Setting, distinct, folder_bytes, main

PACKAGES = ("chromadb",)
disk_bytes = folder_bytes
_ROWS = 5000
# Of all questions of a call; it looks up the metadata of more by "too many SQL variables".
_RESULTS = 30_000


def connect(work):
    return chromadb.PersistentClient(str(work / "chroma"), chromadb.Settings(anonymized_telemetry=False))


def build(data, work, _):
    views, document = data.views, data.document
    options = {"configuration": {"hnsw": {"space": "ip", "num_threads": 1}}, "embedding_function": None}
    collection = connect(work).create_collection("views", **options)
    for begin in range(0, len(views), _ROWS):
        rows = range(begin, min(begin + _ROWS, len(views)))
        metadatas = [{"document": int(document[row])} for row in rows]
        collection.add([str(row) for row in rows], embeddings=views[rows.start : rows.stop], metadatas=metadatas)


def open(_, work, __):
    return connect(work).get_collection("views", embedding_function=None)


def fetched(collection, times, ef=None):
    # It is a setting of the collection, written once when the first question of this setting comes.
    set_ef = functools.cache(lambda: ef and collection.modify(configuration={"hnsw": {"ef_search": ef}}))

    def many(questions, k):
        set_ef()
        found, together = [], max(_RESULTS // (times * k), 1)
        for begin in range(0, len(questions), together):
            asked = questions[begin : begin + together]
            rows = collection.query(query_embeddings=asked, n_results=times * k, include=["metadatas"])["metadatas"]
            found += [distinct([row["document"] for row in each], k) for each in rows]
        return found

    label = f"fetch {times}k, ef {ef or '100 (default)'}"
    return Setting(label=label, one=lambda question, k: many(question[None], k)[0], many=many)


def settings(collection, _):
    yield [fetched(collection, 2)]
    yield [fetched(collection, 8)]
    yield [fetched(collection, 8, ef) for ef in RISING]


if __name__ == "__main__":
    main(sys.modules[__name__])
