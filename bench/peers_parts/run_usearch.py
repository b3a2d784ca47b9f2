"""usearch over views: HNSW with its documented defaults, number type included, 2k or 8k views fetched."""

import numpy as np
from measuring import RISING, Setting, over_fetched
from usearch.index import Index

PACKAGES = ("usearch",)


def build(data, work, _):
    views = data.views
    index = Index(ndim=views.shape[1], metric="ip")
    index.add(np.arange(len(views)), np.asarray(views), threads=1)
    index.save(work / "views.usearch")
    np.save(work / "document.npy", data.document)


def open(_, work, __):
    return Index.restore(work / "views.usearch"), np.load(work / "document.npy")


def setting(engine, times, expansion):
    index, document = engine
    default = index.expansion_search

    def find(vectors, count):
        index.expansion_search = expansion or default
        found = index.search(vectors, count, threads=1)
        return found.keys.reshape(len(vectors), -1).astype(np.int64)

    label = f"fetch {times}k, expansion {expansion or f'{default} (default)'}, {index.dtype.name.lower()}"
    return Setting(label=label, **over_fetched(find, document, times))


def settings(engine, _):
    yield [setting(engine, 2, None)]
    yield [setting(engine, 8, None)]
    yield [setting(engine, 8, expansion) for expansion in RISING]
