"""Faiss over views as it is usually written, 2k or 8k views fetched.

IndexHNSWFlat (M 32, efConstruction 40); and IVF-PQ: 4 sqrt(n) lists, codes of 4 bits for two dimensions, refined.
"""

import faiss
import numpy as np
from measuring import RISING, Setting, over_fetched

PACKAGES = ("faiss-cpu",)
# Of IVF-PQ, in rising cost: lists looked at, and views refined for each that is fetched.
REACHING = ((4, 4), (16, 4), (32, 4), (64, 8), (128, 8), (256, 16), (512, 16))


def build(data, work, variant):
    views = np.asarray(data.views)
    num_views, dim = views.shape
    if variant == "IVF-PQ":
        lists = round(4 * num_views**0.5)
        index = faiss.index_factory(dim, f"IVF{lists},PQ{dim // 2}x4fs,RFlat", faiss.METRIC_INNER_PRODUCT)
        index.train(views)
    else:
        index = faiss.IndexHNSWFlat(dim, 32, faiss.METRIC_INNER_PRODUCT)
    index.add(views)
    faiss.write_index(index, str(work / "views.faiss"))
    np.save(work / "document.npy", data.document)


def open(_, work, __):
    return faiss.read_index(str(work / "views.faiss")), np.load(work / "document.npy")


def by_graph(engine, times, ef):
    graph, document = engine
    default = graph.hnsw.efSearch

    def find(vectors, count):
        graph.hnsw.efSearch = ef or default
        return graph.search(vectors, count)[1]

    label = f"fetch {times}k, ef {ef or f'{default} (default)'}"
    return Setting(label=label, **over_fetched(find, document, times))


def by_lists(engine, times, nprobe, k_factor):
    index, document = engine

    def find(vectors, count):
        lists = faiss.SearchParametersIVF(nprobe=nprobe)
        parameters = faiss.IndexRefineSearchParameters(k_factor=k_factor, base_index_params=lists)
        return index.search(vectors, count, params=parameters)[1]

    return Setting(label=f"fetch {times}k, nprobe {nprobe}, k_factor {k_factor}", **over_fetched(find, document, times))


def settings(engine, variant):
    if variant == "IVF-PQ":
        yield [by_lists(engine, 2, 1, 1)]  # its defaults
        yield [by_lists(engine, 8, 1, 1)]
        yield [by_lists(engine, 8, *each) for each in REACHING]
        return
    yield [by_graph(engine, 2, None)]
    yield [by_graph(engine, 8, None)]
    yield [by_graph(engine, 8, ef) for ef in RISING]
