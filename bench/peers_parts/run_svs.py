"""SVS (Intel) over views: a Vamana graph by its documented defaults, in float32 or LVQ's 4 + 8 bits.

Its binaries refuse LVQ on processors that are not Intel's: then that variant is not run.
"""

import shutil

import numpy as np
import svs
from measuring import RISING, Setting, over_fetched

PACKAGES = ("scalable-vs",)
# Of save(), each in a folder of its own.
PLACES = ("config", "graph", "data")


def build(data, work, variant):
    graph = svs.Vamana.build(svs.VamanaBuildParameters(), np.array(data.views), svs.MIP, num_threads=1)
    save(graph, work)
    if variant == "LVQ4x8":
        # The same graph over codes, which take the views' place.
        views = svs.VectorDataLoader(str(work / "data"), svs.float32)
        codes = loaded(work, svs.LVQLoader(views, primary=4, residual=8))
        (work / "codes").mkdir()
        save(codes, work / "codes")
        for place in PLACES:
            shutil.rmtree(work / place)
            (work / "codes" / place).rename(work / place)
    np.save(work / "document.npy", data.document)


def save(graph, folder):
    graph.save(*(str(folder / place) for place in PLACES))


def loaded(work, loader):
    place = svs.GraphLoader(str(work / "graph"))
    return svs.Vamana(str(work / "config"), place, loader, distance=svs.MIP, num_threads=1)


def open(_, work, variant):
    folder = str(work / "data")
    loader = svs.LVQLoader(folder) if variant == "LVQ4x8" else svs.VectorDataLoader(folder, svs.float32)
    return loaded(work, loader), np.load(work / "document.npy")


def setting(engine, times, window):
    graph, document = engine

    def find(vectors, count):
        graph.search_window_size = max(window, count)
        return graph.search(np.ascontiguousarray(vectors), count)[0].astype(np.int64)

    return Setting(label=f"fetch {times}k, window {window or 'as fetched'}", **over_fetched(find, document, times))


def settings(engine, _):
    # Its window is at least as many as are fetched.
    yield [setting(engine, 2, 0)]
    yield [setting(engine, 8, 0)]
    yield [setting(engine, 8, window) for window in RISING]
