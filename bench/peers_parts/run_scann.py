"""ScaNN over views as its documentation sets it: sqrt(n) leaves, 2-dimensional codes with threshold 0.2, reordered."""

import numpy as np
import scann
from measuring import Setting, over_fetched

PACKAGES = ("scann",)
# In rising cost: the part of the leaves that is searched, and views reordered for each that is fetched.
REACHING = ((0.02, 2), (0.05, 4), (0.1, 4), (0.2, 8), (0.4, 16), (1.0, 32))
DEFAULT = (0.05, 1)


def leaves_of(num_views):
    return max(1, round(num_views**0.5))


def build(data, work, _):
    views = np.array(data.views)
    leaves = leaves_of(len(views))
    builder = scann.scann_ops_pybind.builder(views, 10, "dot_product").set_n_training_threads(1)
    builder = builder.tree(
        num_leaves=leaves, num_leaves_to_search=max(1, leaves // 20), training_sample_size=min(len(views), 250_000)
    )
    searcher = builder.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(100).build()
    (work / "index").mkdir()
    searcher.serialize(str(work / "index"))
    np.save(work / "document.npy", data.document)


def open(_, work, __):
    searcher = scann.scann_ops_pybind.load_searcher(str(work / "index"))
    searcher.set_num_threads(1)
    return searcher, np.load(work / "document.npy")


def setting(engine, times, part, reordered):
    searcher, document = engine
    leaves = max(1, round(part * leaves_of(len(document))))

    def find(vectors, count):
        # search_batched() is its call for many, on one thread; search() for one is faster.
        options = {"leaves_to_search": leaves, "pre_reorder_num_neighbors": reordered * count}
        if len(vectors) == 1:
            return searcher.search(vectors[0], count, **options)[0][None].astype(np.int64)
        return searcher.search_batched(vectors, count, **options)[0].astype(np.int64)

    label = f"fetch {times}k, {leaves} leaves, {reordered} x reordered"
    return Setting(label=label, **over_fetched(find, document, times))


def settings(engine, _):
    yield [setting(engine, 2, *DEFAULT)]
    yield [setting(engine, 8, *DEFAULT)]
    yield [setting(engine, 8, *each) for each in REACHING]
