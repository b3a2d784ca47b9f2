"""mvindex itself: by its public call, which reads the documents found, and by its search alone, as peers answer."""

import sys

import numpy as np
import torch  # noqa: F401 - so is this
from measuring import TARGET, Setting, folder_bytes, main

import mvindex
import mvindex_connectors.engines.faiss  # noqa: F401 - loaded late else, and counted as memory of the index
from mvindex.index import QUERY_BATCH
from mvindex.search import Engines, Request, search_documents

PACKAGES = ("mvindex", "faiss-cpu", "torch")


def disk_bytes(work):
    return folder_bytes(work / "index.mvx")


def build(data, work, variant):
    views, counts = data.views, np.bincount(data.document)
    shape = (len(counts), counts[0], views.shape[1])
    with mvindex.create(work / "index.mvx", dim=views.shape[1]) as index:
        documents = [mvindex.Document(str(number), f"text {number}") for number in range(len(counts))]
        index.add_views(documents, np.asarray(views).reshape(shape))
        index.build(variant)


def open(data, work, variant):
    return mvindex.open(work / "index.mvx"), data


def ids(result):
    return [int(hit.id) for hit in result.hits]


def asked(index, label):
    return Setting(
        label=label,
        one=lambda question, k: ids(index.search(question, top_k=k)),
        many=lambda questions, k: [ids(result) for result in index.search(questions, top_k=k)],
    )


def alone(index, label):
    """Search without reading documents; return their rows, which were added in the order of their numbers."""
    snapshot, ranking = index.current(False)
    engines = Engines(scan=index.exact_scan(), ranking=ranking)

    def many(questions, k):
        request = Request(top_k=k, allowed=snapshot.alive)
        batches = (questions[begin : begin + QUERY_BATCH] for begin in range(0, len(questions), QUERY_BATCH))
        found = (search_documents(snapshot, engines, batch, request) for batch in batches)
        return [ranking.rows.tolist() for batch in found for ranking in batch]

    return Setting(label=f"{label}, documents not read", one=lambda question, k: many(question[None], k)[0], many=many)


def settings(engine, variant):
    index, data = engine
    usual = "certified scan" if variant == "exact" else "usual search"
    yield [asked(index, usual)]
    yield [alone(index, usual)]
    if variant != "exact":
        report = index.tune(np.array(data.questions), top_k=100, target_recall=TARGET)
        search = "no setting reaches it" if report.chosen is None else f"tuned: {dict(report.chosen.search)}"
        yield [asked(index, search)]
        yield [alone(index, search)]


if __name__ == "__main__":
    main(sys.modules[__name__])
