"""faiss IndexHNSWFlat over views as it is usually written (M 32, efConstruction 40), 2k or 8k views fetched."""

import sys

import faiss
import numpy as np
from measuring import RISING, Setting, folder_bytes, main, over_fetched

PACKAGES = ("faiss-cpu",)
disk_bytes = folder_bytes


def build(data, work, _):
    views = data.views
    graph = faiss.IndexHNSWFlat(views.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    graph.add(np.asarray(views))
    faiss.write_index(graph, str(work / "views.faiss"))
    np.save(work / "document.npy", data.document)


def open(_, work, __):
    return faiss.read_index(str(work / "views.faiss")), np.load(work / "document.npy")


def setting(engine, times, ef):
    graph, document = engine
    default = graph.hnsw.efSearch

    def find(vectors, count):
        graph.hnsw.efSearch = ef or default
        return graph.search(vectors, count)[1]

    label = f"fetch {times}k, ef {ef or f'{default} (default)'}"
    return Setting(label=label, **over_fetched(find, document, times))


def settings(engine, _):
    yield [setting(engine, 2, None)]
    yield [setting(engine, 8, None)]
    yield [setting(engine, times, ef) for ef in RISING for times in (2, 8) if ef >= 100 * times]


if __name__ == "__main__":
    main(sys.modules[__name__])
