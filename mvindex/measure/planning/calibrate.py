"""Measure the rates of this machine: every kind is built and searched at two sizes, through the public API.

A process of its own does it, with one thread: it can be ended at any time, also inside a library's call, and what it
measured until then counts.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.engines.params import IVF_KINDS
from mvindex.engines.protocol import EXACT
from mvindex.errors import MvindexError, StoreError
from mvindex.kernels import expect_work
from mvindex.measure.planning.rates import Line, Rates, Workload, build_products, build_work, query_work
from mvindex.measure.planning.sizes import Collection
from mvindex.records import ProgressCallback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mvindex.index import Index
    from mvindex.records import Floats

MAX_SECONDS = 60.0
# The default choice first, the slowest to build last: what the time does not allow is left out.
KINDS = (EXACT, "ivf-pq", "ivf-sq8", "ivf-flat", "ivf-rabitq", "flat", "hnsw")
_ELEMENTS, _MIN_VIEWS, _MAX_VIEWS = 6 << 20, 8192, 16_384
# Lists are scanned so fast that only so many elements tell the rate from all else of a query.
_LIST_ELEMENTS = 48 << 20
_NLIST, _QUERIES, _MAX_PER_DOCUMENT = 8, 9, 64
_PRODUCT_SHAPE = (1024, 4096)
# More than the caches of a CPU: a single query finds the data of a large index in memory only.
_CACHE_BYTES = 96 << 20
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def measure_rates(
    collection: Collection, folder: Path, on_progress: ProgressCallback, max_seconds: float = MAX_SECONDS
) -> Rates:
    """Return the rates of this machine for views like the collection's; delete what was written in the folder.

    Kinds that max_seconds do not reach have no rates. Raises ExtraMissing without Faiss, StoreError where the folder
    cannot be written to.
    """
    try:
        with TemporaryDirectory(prefix="mvindex-plan-", dir=folder) as name:
            return _collect(collection, Path(name), on_progress, time.monotonic() + max_seconds)
    except OSError as err:
        raise StoreError(f"{folder}: cannot measure there: {err.strerror or err}. Give another --folder") from err


def _collect(collection: Collection, folder: Path, on_progress: ProgressCallback, deadline: float) -> Rates:
    """Return what the other process measures until the deadline."""
    product_s, build, query = 0.0, dict[str, Line](), dict[str, Line]()
    with _started(collection, folder) as receiver:
        for done in range(len(KINDS) + 1):
            on_progress("measuring this machine", done, len(KINDS) + 1)
            if not receiver.poll(max(0.0, deadline - time.monotonic())):
                break
            try:
                message = receiver.recv()
            except EOFError as err:
                raise StoreError("measuring this machine: the process that measures has ended by itself") from err
            if isinstance(message, MvindexError | OSError):
                raise message
            if isinstance(message, float):
                product_s = message
            else:
                kind, build[kind], query[kind] = message
        else:
            on_progress("measuring this machine", len(KINDS) + 1, len(KINDS) + 1)
    return Rates(product_s=product_s, build=build, query=query)


@contextmanager
def _started(collection: Collection, folder: Path) -> Iterator[Connection]:
    """Yield what a process that measures sends; kill the process afterwards."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(collection, folder, sender), daemon=True)
    process.start()
    sender.close()
    try:
        yield receiver
    finally:
        process.kill()
        process.join()
        receiver.close()


def _measure(collection: Collection, folder: Path, sender: Connection) -> None:
    """Send the seconds of a product, then (kind, build, query) of each kind; or the error that ends it."""
    # Before the libraries are loaded; two threads that wait for a busy core are slower than one.
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    # A Ctrl-C reaches both processes; the other one ends this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for message in _Calibration(collection, folder).results():
            sender.send(message)
    except (MvindexError, OSError) as err:
        with suppress(BrokenPipeError):
            sender.send(err)


class _Calibration:
    def __init__(self, collection: Collection, folder: Path) -> None:
        self._folder, self._dim, self._dtype = folder, collection.dim, collection.view_type.value
        self._per_document = max(1, min(round(collection.views), _MAX_PER_DOCUMENT))
        self._random = np.random.default_rng(1)
        self._cache = np.ones(_CACHE_BYTES // 4, dtype=np.float32)

    def results(self) -> Iterator[Any]:
        product_s = self._product_seconds()
        yield product_s
        num_views = min(max(_ELEMENTS // self._dim, _MIN_VIEWS), _MAX_VIEWS)
        with (
            self._make_index(num_views // 4) as small,
            self._make_index(num_views) as large,
            self._make_index(max(2 * num_views, _LIST_ELEMENTS // self._dim)) as larger,
        ):
            for kind in KINDS:
                both = (large, larger) if kind in IVF_KINDS else (small, large)
                builds, queries = zip(*(self._points(kind, index, product_s) for index in both), strict=True)
                build = Line(fixed_s=0.0, per_unit_s=0.0) if kind == EXACT else Line.through(*builds)
                yield kind, build, Line.through(*queries)

    def _make_index(self, num_views: int) -> Index:
        """Return an index of unit views; those of a document lie near each other."""
        from mvindex.index.factory import create
        from mvindex.records import Document

        index = create(self._folder / f"{num_views}.mvx", dim=self._dim, dtype=self._dtype)
        count = num_views // self._per_document
        views: Floats = self._random.standard_normal((count, 1, self._dim), dtype=np.float32)
        spread = self._random.standard_normal((count, self._per_document, self._dim), dtype=np.float32)
        views = views + spread * np.float32(0.5)
        views /= np.linalg.norm(views, axis=2, keepdims=True)
        index.add_views([Document(str(row), "a") for row in range(count)], views)
        return index

    def _points(self, kind: str, index: Index, product_s: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return (work, seconds) of a build without its products, and of the fastest query."""
        num_views = index.info().views
        load = Workload(kind=kind, num_views=num_views, all_views=num_views, dim=self._dim, nlist=_NLIST, nprobe=_NLIST)
        started = time.perf_counter()
        index.build(kind, nlist=_NLIST if kind in IVF_KINDS else None)
        build_s = time.perf_counter() - started - product_s * build_products(load)
        queries: Floats = self._random.standard_normal((_QUERIES, self._dim), dtype=np.float32)
        expect_work()
        index.search(queries[0])  # compiles code and makes copies
        query_s = min(self._query_seconds(index, query) for query in queries)
        return (build_work(load), max(build_s, 0.0)), (query_work(load), query_s)

    def _query_seconds(self, index: Index, query: Floats) -> float:
        self._cache += 1
        started = time.perf_counter()
        index.search(query)
        return time.perf_counter() - started

    def _product_seconds(self) -> float:
        left, right = (np.ones((rows, self._dim), dtype=np.float32) for rows in _PRODUCT_SHAPE)
        seconds = []
        for _ in range(3):
            started = time.perf_counter()
            left @ right.T
            seconds.append(time.perf_counter() - started)
        return min(seconds) / (_PRODUCT_SHAPE[0] * _PRODUCT_SHAPE[1] * self._dim)
