"""mvindex itself: by its public call, which reads documents, and by its search without them, as peers answer."""

import sys

import numpy as np
import torch  # noqa: F401 - so is this
from measuring import TARGET, Setting, folder_bytes, main

import mvindex
import mvindex_connectors.engines.faiss  # noqa: F401 - loaded late else, and counted as memory of the index
from mvindex.index import search_engine_of
from mvindex.search import search_parts
from mvindex.search.options import SearchOptions
from mvindex.search.queries import QUERY_BATCH

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


def public(index, label):
    return Setting(
        label=label,
        one=lambda question, k: ids(index.search(question, top_k=k)),
        many=lambda questions, k: [ids(result) for result in index.search(questions, top_k=k)],
    )


def without_documents(index, label):
    """Search without reading documents; return their rows, which were added in the order of their numbers."""

    def many(questions, k):
        with search_engine_of(index).opened(SearchOptions(top_k=k)) as opened:
            parts = [part.search for part in opened]
            batches = (questions[begin : begin + QUERY_BATCH] for begin in range(0, len(questions), QUERY_BATCH))
            return [ranking.rows.tolist() for batch in batches for ranking in search_parts(parts, batch)]

    return Setting(label=f"{label}, documents not read", one=lambda question, k: many(question[None], k)[0], many=many)


def settings(engine, variant):
    index, data = engine
    default = "certified scan" if variant == "exact" else "default search"
    yield [public(index, default)]
    yield [without_documents(index, default)]
    if variant != "exact":
        report = index.tune(np.array(data.questions), top_k=100, target_recall=TARGET)
        search = "no setting reaches it" if report.chosen is None else f"tuned: {dict(report.chosen.search)}"
        yield [public(index, search)]
        yield [without_documents(index, search)]


if __name__ == "__main__":
    main(sys.modules[__name__])
