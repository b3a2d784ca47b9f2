"""Chroma, embedded: HNSW over views by its defaults (M 16, ef_construction 100, ef_search 100), a row a view."""

import chromadb
from measuring import RISING, Setting, distinct

PACKAGES = ("chromadb",)
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


class Opened:
    """The collection, which set_ef() opens again: what is open keeps the ef_search that it was opened with."""

    def __init__(self, work):
        self._work, self._ef = work, None
        self._open()

    def _open(self):
        self._client = connect(self._work)
        self.collection = self._client.get_collection("views", embedding_function=None)

    def set_ef(self, ef):
        if ef != self._ef:
            self.collection.modify(configuration={"hnsw": {"ef_search": ef}})
            self._client.clear_system_cache()
            self._open()
            self._ef = ef


def open(_, work, __):
    return Opened(work)


def fetched(opened, times, ef=None):
    def many(questions, k):
        if ef is not None:
            opened.set_ef(ef)
        found, together = [], max(_RESULTS // (times * k), 1)
        for begin in range(0, len(questions), together):
            asked = questions[begin : begin + together]
            rows = opened.collection.query(query_embeddings=asked, n_results=times * k, include=["metadatas"])
            found += [distinct([row["document"] for row in each], k) for each in rows["metadatas"]]
        return found

    label = f"fetch {times}k, ef {ef or '100 (default)'}"
    return Setting(label=label, one=lambda question, k: many(question[None], k)[0], many=many)


def settings(opened, _):
    yield [fetched(opened, 2)]
    yield [fetched(opened, 8)]
    yield [fetched(opened, 8, ef) for ef in RISING]
