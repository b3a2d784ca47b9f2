"""Some seconds of measuring on this machine: the rates that a plan's times are worked out from.

Everything is timed as it is used: scans, engines and scores over small real indexes in a folder that is then removed.
Each rate is measured several times, and searches of one query start with cold caches, as they find a large index.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar

import numpy as np

from mvindex import engines
from mvindex.engines.params import COARSE_KINDS, IVF_KINDS
from mvindex.engines.protocol import BuildOptions, Kind, RankingEngine
from mvindex.errors import StoreError
from mvindex.kernels.threads import default_threads
from mvindex.planning.disk import measured_disk
from mvindex.planning.rates import Rates, Span
from mvindex.planning.samples import Sample, make_sample
from mvindex.planning.sizes import Collection
from mvindex.scoring.aggregate import Scoring
from mvindex.search import Engines, Request, search_documents
from mvindex.search.rescore import Pairs, score_pairs
from mvindex.store.views import decode

T = TypeVar("T")
Told = Callable[[str, int, int | None], None]

_TIMES, _BATCH, _ADDINGS = 15, 64, 3
# More than the caches of a CPU hold.
_CACHE_BYTES = 96 << 20
# Views times dimensions of what is measured on, and views at least and at most.
_ELEMENTS, _LEAST_VIEWS, _MOST_VIEWS, _LINKED_VIEWS = 1 << 23, 8192, 32_768, 2048
_LISTS = 8
# Faiss multiplies by BLAS from so many elements of queries on.
_PRODUCT_ROWS, _PRODUCT_ELEMENTS = 1024, 160_000
# Views that one meets when it is linked into so small a graph: ten times ef, which is 80.
_MET_IN_LINKING = 800
_HITS, _SCORED = 400, 300
_KINDS = sorted(IVF_KINDS, key=lambda kind: kind.value)


def measured(held: Collection, folder: Path, on_progress: Told) -> Rates:
    """The rates of this machine for views of this kind; what is written in the folder is removed again.

    ExtraMissing without Faiss; StoreError where the folder cannot be written to.
    """
    try:
        with TemporaryDirectory(prefix="mvindex-plan-", dir=folder) as name:
            return _Bench(held, Path(name), on_progress).rates()
    except OSError as err:
        raise StoreError(f"{folder}: cannot measure there: {err.strerror or err}; give another --folder") from err


class _Built(NamedTuple):
    engine: RankingEngine
    seconds: Sequence[float]


class _Bench:
    """One calibration."""

    def __init__(self, held: Collection, folder: Path, on_progress: Told) -> None:
        self._held, self._folder, self._told = held, folder, on_progress
        self._cache = np.ones(_CACHE_BYTES // 4, dtype=np.float32)
        self._num_done = 0

    def rates(self) -> Rates:
        """All of them, one step after the other."""
        dim = self._held.dim
        write, read, random_read = self._step(lambda: measured_disk(self._folder, self._document_bytes()))
        coded = self._step(lambda: self._sample("views", min(max(_ELEMENTS // dim, _LEAST_VIEWS), _MOST_VIEWS)))
        scans = self._step(lambda: self._exact(coded))
        rescore, rescore_batch = self._step(lambda: self._rescoring(coded))
        built = {kind: self._step(partial(self._built, coded, kind, _LISTS, _ADDINGS)) for kind in _KINDS}
        flat, filling = self._built(coded, Kind.FLAT, None, _ADDINGS)
        product = self._step(lambda: self._product(coded, flat))
        scans |= self._step(lambda: self._scans(coded, flat, built))
        linked = self._step(self._linked)
        overhead = self._step(lambda: self._overheads(coded, built[Kind.IVF_PQ].engine, (rescore, rescore_batch)))
        return Rates(
            dim=dim,
            threads=default_threads(),
            scan=engines.scan_name(),
            scans=scans | {f"hnsw {mode}": linked[mode] for mode in ("alone", "batch")},
            adds={kind.value: self._adding(coded, kind, built[kind].seconds, product) for kind in _KINDS}
            | {"flat": Span.of(seconds / coded.elements for seconds in filling)},
            read_memory=self._step(self._memory),
            product=product,
            distance=linked["alone"],
            distance_batch=linked["batch"],
            linking=linked["linking"],
            rescore=rescore,
            rescore_batch=rescore_batch,
            overhead=overhead["alone"],
            overhead_batch=overhead["batch"],
            write_disk=write,
            read_disk=read,
            random_read=random_read,
        )

    def _step(self, measure: Callable[[], T]) -> T:
        found = measure()
        self._num_done += 1
        self._told("measuring this machine", self._num_done, 9 + len(_KINDS))
        return found

    def _sample(self, name: str, num_views: int) -> Sample:
        return make_sample(self._folder / f"{name}.mvx", self._held, num_views)

    def _document_bytes(self) -> int:
        return max(1, round(self._held.views * self._held.dim * self._held.view_type.dtype.itemsize))

    def _memory(self) -> Span:
        """Of a byte: a matrix that no cache holds, times a vector."""
        dim = self._held.dim
        matrix = self._cache[: len(self._cache) // dim * dim].reshape(-1, dim)
        query = np.ones(dim, dtype=np.float32)
        return Span.of(_seconds(lambda: matrix @ query) / matrix.nbytes for _ in range(_TIMES))

    def _exact(self, sample: Sample) -> dict[str, Span]:
        """Of a view's dimension and query, by the scan in use."""
        scan, allowed = engines.open_scan(), sample.snapshot.alive

        def ask(count: int) -> None:
            scan.candidates(sample.snapshot, sample.some(count), 10, allowed, Scoring())

        return self._both("exact", ask, sample.elements)

    def _rescoring(self, sample: Sample) -> tuple[Span, Span]:
        """Of a view's dimension, of documents drawn by chance."""
        snapshot, drawn = sample.snapshot, np.random.default_rng(2)

        def score(count: int) -> None:
            scored = min(_SCORED, snapshot.num_rows)
            rows = np.concatenate([drawn.permutation(snapshot.num_rows)[:scored] for _ in range(count)])
            which = np.repeat(np.arange(count), scored)
            score_pairs(snapshot.views, sample.some(count), Pairs(rows, which), Scoring())

        elements = min(_SCORED, snapshot.num_rows) * sample.elements / snapshot.num_rows
        found = self._both("rescore", score, elements)
        return found["rescore alone"], found["rescore batch"]

    def _product(self, coded: Sample, flat: RankingEngine) -> Span:
        """Of a multiplication and addition, as the lists of views are found: the best of all for each of many."""
        count = min(coded.snapshot.views.num_views, max(_PRODUCT_ROWS, _PRODUCT_ELEMENTS // self._held.dim))
        asked = decode(coded.snapshot.views.read_views(0, count))
        flat.search(asked, 1, None)
        seconds = [_seconds(lambda: flat.search(asked, 1, None)) for _ in range(_ADDINGS)]
        return Span.of(each / count / coded.elements for each in seconds)

    def _adding(self, coded: Sample, kind: Kind, seconds: Sequence[float], product: Span) -> Span:
        """Of a view's dimension to be added, finding its list and rotating it left out."""
        width = _LISTS + (self._held.dim if kind in COARSE_KINDS else 0)
        return Span.of(each / coded.elements for each in seconds).less(product.mid * width)

    def _built(self, sample: Sample, kind: Kind, lists: int | None, times: int) -> _Built:
        """The engine, and seconds of filling it: the first build of lists trains them, and is not counted."""
        factory, work = engines.find_factory(kind), self._folder / f"work-{kind.value}-{lists}"
        seconds = []
        for number in range(times + (lists is not None)):
            directory = self._folder / f"engine-{kind.value}-{lists}-{number}"
            directory.mkdir()
            started = time.perf_counter()
            settings = factory.build(kind, sample.snapshot, directory, BuildOptions(work=work, lists=lists))
            seconds.append(time.perf_counter() - started)
        covered = {"built_rows": sample.snapshot.num_rows}
        return _Built(factory.open(kind, directory, {**settings, **covered}), seconds[lists is not None :])

    def _scans(self, coded: Sample, flat: RankingEngine, built: Mapping[Kind, _Built]) -> dict[str, Span]:
        """Of a view's dimension and query, by kind: looking at all lists, less the time of one."""
        found = self._both("flat", lambda count: _search(flat, coded, count), coded.elements)
        share = coded.elements * (1 - 1 / _LISTS)
        for kind, (engine, _) in built.items():
            one, every = (
                self._both(
                    kind.value, partial(_search, engine.with_search({"probes": probes, "fetch": 1}), coded), share
                )
                for probes in (1, _LISTS)
            )
            found |= {name: every[name].without(one[name].mid) for name in every}
        return found

    def _linked(self) -> dict[str, Span]:
        """Of a dimension of a view met in a graph: a search that meets nearly all of a small one."""
        sample = self._sample("linked", _LINKED_VIEWS)
        built, seconds = self._built(sample, Kind.HNSW, None, 2)
        engine = built.with_search({"ef": 1, "fetch": 1})
        found = self._both("x", lambda count: _search(engine, sample, count, _LINKED_VIEWS // 2), sample.elements)
        linking = Span.of(each / sample.elements / _MET_IN_LINKING for each in seconds)
        return {"linking": linking} | {mode: found[f"x {mode}"] for mode in ("alone", "batch")}

    def _overheads(self, coded: Sample, engine: RankingEngine, rescore: tuple[Span, Span]) -> dict[str, Span]:
        """Of a query: a whole search, less what engine and scores took of it."""
        snapshot, ranking = coded.snapshot, engine.with_search({"probes": 1, "fetch": 1})
        used = Engines(scan=engines.open_scan(), ranking=ranking)
        request = Request(top_k=10, allowed=snapshot.alive)
        scored = search_documents(snapshot, used, coded.some(_BATCH), request)
        elements = float(np.mean([ranking.num_scored for ranking in scored])) * coded.elements / snapshot.num_rows
        whole = self._both("x", lambda count: search_documents(snapshot, used, coded.some(count), request), 1)
        inner = self._both("x", lambda count: _search(ranking, coded, count), 1)
        modes = zip(("alone", "batch"), rescore, strict=True)
        return {mode: whole[f"x {mode}"].less(inner[f"x {mode}"].mid + elements * rate.mid) for mode, rate in modes}

    def _both(self, name: str, ask: Callable[[int], object], elements: float) -> dict[str, Span]:
        """Seconds of an element, by what is asked for so many queries: each alone, from memory, and in a batch."""
        for count in (1, _BATCH):
            ask(count)  # copies are made, code is compiled
        alone = [self._cold(lambda: ask(1)) / elements for _ in range(_TIMES)]
        batch = [_seconds(lambda: ask(_BATCH)) / elements / _BATCH for _ in range(_ADDINGS)]
        return {f"{name} alone": Span.of(alone), f"{name} batch": Span.of(batch)}

    def _cold(self, call: Callable[[], object]) -> float:
        self._cache.sum()
        return _seconds(call)


def _search(engine: RankingEngine, sample: Sample, count: int, limit: int = _HITS) -> None:
    engine.search(sample.some(count), limit, None)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
