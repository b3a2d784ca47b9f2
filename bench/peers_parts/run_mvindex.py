"""mvindex itself: by its public call, which reads documents, and by its search without them, as peers answer."""

import functools
import time

import numpy as np
import torch  # noqa: F401 - so is this
from measuring import Setting

import mvindex
import mvindex_connectors.engines.faiss  # noqa: F401 - loaded late else, and counted as memory of the index
from mvindex.engines.build import save_search_params
from mvindex.index import embedded_store_of, search_engine_of
from mvindex.search.plan import Plan
from mvindex.search.request import QUERY_BATCH
from mvindex.search.views import rank_views

PACKAGES = ("mvindex", "faiss-cpu", "torch")


def build(data, work, variant):
    views, counts = data.views, np.bincount(data.document)
    with mvindex.create(work / "index.mvx", dim=views.shape[1]) as index:
        documents = [mvindex.Document(str(number), f"text {number}") for number in range(len(counts))]
        index.add_views(documents, np.split(np.asarray(views), np.cumsum(counts)[:-1]))
        index.admin.build(variant)


def open(_, work, __):
    return loaded(work / "index.mvx"), work / "index.mvx"


def loaded(path):
    """Open an index whose compiled loops are loaded: a thread that loads them would count as time of queries."""
    index = mvindex.open(path)
    while not index.warm_up():
        time.sleep(0.1)
    return index


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
        with search_engine_of(index).opened(Plan(top_k=k)) as parts:
            batches = (questions[begin : begin + QUERY_BATCH] for begin in range(0, len(questions), QUERY_BATCH))
            return [ranking.rows.tolist() for batch in batches for ranking in rank_views(parts, batch)]

    return Setting(label=f"{label}, documents not read", one=lambda question, k: many(question[None], k)[0], many=many)


def rising(index, path):
    """Return the public call by each setting that `tune` measures, in rising cost; rescored as widely as it may."""
    with search_engine_of(index).opened(Plan(top_k=100)) as parts:
        [choices] = [part.engines.ranking.choices() for part in parts.all]
    widest = max(choice.get("k_factor", 0) for choice in choices)

    def setting(choice):
        @functools.cache
        def opened_for(k):
            with mvindex.open(path) as writer:
                save_search_params(embedded_store_of(writer), {**choice, "top_k": k})
            return loaded(path)

        return Setting(
            label=", ".join(f"{name} {value}" for name, value in choice.items()),
            one=lambda question, k: ids(opened_for(k).search(question, top_k=k)),
            many=lambda questions, k: [ids(result) for result in opened_for(k).search(questions, top_k=k)],
        )

    return [setting(choice) for choice in choices if choice.get("k_factor", 0) == widest]


def settings(engine, variant):
    index, path = engine
    default = "certified scan" if variant == "exact" else "default search"
    yield [public(index, default)]
    yield [without_documents(index, default)]
    if variant != "exact":
        yield rising(index, path)
