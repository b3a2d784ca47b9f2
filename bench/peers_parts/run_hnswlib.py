"""hnswlib over views: HNSW with its documented defaults (M 16, ef_construction 200), 2k or 8k views fetched."""

import hnswlib
import numpy as np
from measuring import RISING, Setting, over_fetched

PACKAGES = ("hnswlib",)


def build(data, work, _):
    views = data.views
    graph = hnswlib.Index(space="ip", dim=views.shape[1])
    graph.init_index(max_elements=len(views), M=16, ef_construction=200)
    graph.add_items(views, np.arange(len(views)), num_threads=1)
    graph.save_index(str(work / "views.hnsw"))
    np.save(work / "document.npy", data.document)


def open(data, work, _):
    graph = hnswlib.Index(space="ip", dim=data.views.shape[1])
    graph.load_index(str(work / "views.hnsw"))
    graph.set_num_threads(1)
    return graph, np.load(work / "document.npy")


def setting(engine, times, ef):
    graph, document = engine

    def find(vectors, count):
        graph.set_ef(max(ef, count))
        return graph.knn_query(vectors, k=count)[0].astype(np.int64)

    return Setting(label=f"fetch {times}k, ef {ef or 'as fetched'}", **over_fetched(find, document, times))


def settings(engine, _):
    # It searches with ef as many as are fetched, where that is more than what was set.
    yield [setting(engine, 2, 0)]
    yield [setting(engine, 8, 0)]
    yield [setting(engine, 8, ef) for ef in RISING]
