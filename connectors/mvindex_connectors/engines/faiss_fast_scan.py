"""Kind ivf-pq searched by compiled loops, which read centroids, codes and rows where Faiss holds them.

Faiss searches the lists of one query in one thread, in the order of their numbers. Here the nearest come first, so that
few of the later codes may be among the best, and the next list is called for while one is read. Codes of equal score
come in the order in which their lists are visited: a result is the same for any number of threads and queries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import EngineUnavailable
from mvindex.kernels import has_int8_products, pays_to_load, pays_to_wait
from mvindex.kernels.copies import aligned_bytes
from mvindex.kernels.loading import Loading
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Floats, Ints
from mvindex_connectors.engines.faiss_files import translated
from mvindex_connectors.engines.faiss_ivf import has_groups, ivf_of
from mvindex_connectors.engines.faiss_mapped import MappedLists
from mvindex_connectors.engines.faiss_split import NearestLists

# Codes that a thread must have to search: of 96 dimensions .6 ms, where starting a thread takes .1.
CODES_PER_THREAD = 1 << 19
# Of the lists of a query the nearest of so many are scanned before the rest is shared out: they hold most of the best.
_FIRST_SHARE = 16
# Queries of a batch that are scanned together: up to some 300 KB of memory each.
_AT_ONCE = 128
_NO_BITS = np.empty(0, dtype=np.uint8)
_LOOPS = Loading()


class Depth(NamedTuple):
    """How far a search goes: rows, lists, and groups in which the lists are looked for."""

    limit: int
    nprobe: int
    groups: int


class _Query(NamedTuple):
    """A query as its lists are scanned: see scan_lists() for lists and tables; a score is sum / scale + base."""

    lists: Ints
    tables: npt.NDArray[np.uint8]
    num_codes: int
    most: int
    scale: float
    base: float


class FastScan:
    """The inverted lists of an index of kind ivf-pq. Thread-safe."""

    def __init__(self, faiss: ModuleType, index: Any, mapped: MappedLists | None = None) -> None:
        """Read the lists of the index; mapped: them, where the index has none."""
        self._faiss, self._index, self._mapped = faiss, index, mapped
        self._ivf = faiss.downcast_index(ivf_of(faiss, index))
        self._quantiser = faiss.downcast_index(self._ivf.quantizer)
        self._has_groups = has_groups(faiss, index)

    @property
    def fits(self) -> bool:
        """Whether the loops can read this index, on this machine."""
        is_rotated = isinstance(self._index, self._faiss.IndexPreTransform)
        return bool(has_int8_products() and is_rotated and self._ivf.by_residual and self._ivf.d % 8 == 0)

    def is_ready(self, nprobe: int) -> bool:
        """Return whether a search of so many lists is to be done here; the loops may be loaded in the meantime."""
        if self._mapped is not None:
            if is_done := _LOOPS.is_done(_load):
                self._mapped.drop_whole()
            return is_done
        work = self._ivf.ntotal * nprobe // self._ivf.nlist * self._ivf.pq.M
        return self.fits and pays_to_load(work) and _LOOPS.is_done(_load, waits=pays_to_wait(work))

    def search(
        self,
        queries: Floats,
        depth: Depth,
        allowed: npt.NDArray[np.uint8] | None,
        found: dict[int, NearestLists] | None = None,
    ) -> tuple[Floats, Ints]:
        """Return scores and rows, (q, limit), best first, -inf and -1 where there are no more.

        allowed: a bit for each row, as IDSelectorBitmap has them; None where all are. found: the lists nearest to a
        query by its number, for as many lists; those that are not there are added.
        """
        nearest = {} if found is None else found
        scores = np.full((len(queries), depth.limit), -np.inf, dtype=np.float32)
        rows = np.full((len(queries), depth.limit), -1, dtype=np.int64)
        num_threads, bits = default_threads(), _NO_BITS if allowed is None else allowed
        each = self._threads_for(depth.nprobe, num_threads) if len(queries) == 1 else 1
        work = deque(np.array_split(np.arange(len(queries)), max(num_threads, -(-len(queries) // _AT_ONCE))))

        def search_some() -> None:
            for numbers in taken_from(work):
                for number in numbers.tolist():
                    if number not in nearest:
                        nearest[number] = self._nearest(queries[number], depth, each)
                prepared = [self._prepared(nearest[number]) for number in numbers.tolist()]
                best = _scanned(prepared, depth.limit, bits, each) if prepared else []
                for number, query, keys in zip(numbers, prepared, best, strict=True):
                    scores[number, : len(keys)], rows[number, : len(keys)] = _read(keys, query)

        run_in_threads(search_some, min(num_threads, len(queries)))
        return scores, rows

    def _threads_for(self, nprobe: int, num_threads: int) -> int:
        """Return in how many threads, at most num_threads, the lists of one query are searched."""
        codes = int(self._ivf.ntotal) * nprobe // int(self._ivf.nlist)
        return max(1, min(num_threads, codes // CODES_PER_THREAD))

    def _prepared(self, nearest: NearestLists) -> _Query:
        from mvindex.kernels.fast_scan import MAX_SCORE, describe_lists

        vector, scores, lists = (each[0] for each in nearest)
        if self._mapped is not None:
            self._mapped.check(lists)
        products = np.einsum("ijk,ik->ij", self._codebook, vector.reshape(len(self._codebook), -1))
        lows = products.min(axis=1, keepdims=True)
        spans = products.max(axis=1) - lows[:, 0]
        # The widest table takes up a byte; all of them and the lists' biases, each rounded, 16 bits. In float64: spans
        # of documents that are nearly alike would vanish beside the scores.
        span = float(spans.sum(dtype=np.float64)) + (float(scores.max()) - float(scores.min()))
        slack = len(spans) + 1
        scale = min(255 / max(float(spans.max()), 1e-30), (MAX_SCORE - slack) / max(span, 1e-30))
        tables = aligned_bytes(products.size)
        tables[:] = np.rint((products - lows) * np.float32(scale)).ravel()
        described = np.empty((len(lists), 6), dtype=np.int64)
        num_codes = describe_lists(self._table, lists, scores, scale, described)
        if num_codes < 0:
            raise EngineUnavailable(
                f"ivf-pq: {len(lists)} lists, the longest of {self._table[lists, 1].max()} views; a search takes up to "
                "2^20 lists of up to 2^28 views each; build with a larger nlist, or search with a smaller nprobe"
            )
        # The highest score there can be: scores are counted in an array of so many places.
        most = int(tables.reshape(products.shape).max(axis=1).sum(dtype=np.int64) + described[:, 2].max())
        return _Query(described, tables, num_codes, most, scale, float(lows.sum() + scores.min()))

    def _nearest(self, query: Floats, depth: Depth, num_threads: int) -> NearestLists:
        """Return the lists nearest to a query, the nearest first."""
        # Not by a matrix product: its threads may wait for cores, and its sums depend on how many queries there are.
        vector = np.einsum("ij,j->i", self._rotation, query)
        scores, lists = self._scored_lists(vector, depth, num_threads)
        return NearestLists(vector[None], scores[None], lists[None])

    def _scored_lists(self, vector: Floats, depth: Depth, num_threads: int) -> tuple[Floats, Ints]:
        """Return the scores and numbers of the lists nearest to a rotated query, the nearest first."""
        from mvindex.kernels.fast_scan import score_groups

        if not self._has_groups:
            scores, lists = translated(self._quantiser.search, vector[None], depth.nprobe)
            return scores[0], lists[0]
        groups = self._groups
        found = np.einsum("ij,j->i", groups.centroids, vector)
        nearest = np.sort(np.argpartition(-found, depth.groups - 1)[: depth.groups])
        chosen = groups.table[nearest]
        ends = chosen[:, 1].cumsum()
        chosen[:, 2] = ends - chosen[:, 1]
        scores, lists = np.empty(ends[-1], dtype=np.float32), np.empty(ends[-1], dtype=np.int64)
        shares = deque(np.array_split(chosen, num_threads))
        run_in_threads(
            lambda: [score_groups(share, vector, scores, lists) for share in taken_from(shares)], num_threads
        )
        if len(scores) > depth.nprobe:
            best = np.argpartition(-scores, depth.nprobe)[: depth.nprobe]
            scores, lists = scores[best], lists[best]
        order = np.lexsort((lists, -scores))
        return scores[order], lists[order]

    @cached_property
    def _rotation(self) -> Floats:
        rotation = self._faiss.downcast_VectorTransform(self._index.chain.at(0))
        matrix: Floats = self._faiss.vector_to_array(rotation.A).reshape(rotation.d_out, rotation.d_in)
        return matrix

    @cached_property
    def _codebook(self) -> Floats:
        """The vectors that codes stand for, (parts, values, dims of a part)."""
        pq = self._ivf.pq
        codebook: Floats = self._faiss.vector_to_array(pq.centroids).reshape(pq.M, pq.ksub, pq.dsub)
        return codebook

    @cached_property
    def _table(self) -> Ints:
        return _addresses(self._faiss, self._ivf) if self._mapped is None else self._mapped.table

    @cached_property
    def _groups(self) -> _Groups:
        table = _addresses(self._faiss, self._quantiser)[:, [0, 1, 0, 2]]
        flat = self._faiss.downcast_index(self._quantiser.quantizer)
        return _Groups(self._faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(-1, flat.d), table)


class _Groups(NamedTuple):
    """The groups of centroids: their own centroids, and for each what score_groups() reads of it."""

    centroids: Floats
    table: Ints


def _addresses(faiss: ModuleType, ivf: Any) -> Ints:
    """Return the address of each list's codes, their number, and the address of their rows, (nlist, 3)."""
    lists = faiss.downcast_InvertedLists(ivf.invlists)
    table = np.zeros((ivf.nlist, 3), dtype=np.int64)
    for number in range(ivf.nlist):
        size = lists.list_size(number)
        if size:
            table[number] = int(lists.get_codes(number)), size, int(lists.get_ids(number))
    return table


class _Kept(NamedTuple):
    """The best codes so far of some queries, as scan_lists() has them."""

    counts: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint64]
    states: Ints

    def scan(self, lists: Ints, tables: npt.NDArray[np.uint8], allowed: npt.NDArray[np.uint8], limit: int) -> None:
        """Scan the lists of these queries."""
        from mvindex.kernels.fast_scan import scan_lists

        scan_lists(lists, tables, allowed, limit, self.counts, self.keys, self.states)

    def fresh(self) -> _Kept:
        """Return the same without codes, for other lists; the least scores that may be among the best are known."""
        return _Kept(np.zeros_like(self.counts), np.empty_like(self.keys), self.states * np.array([0, 1, 0]))


def _scanned(
    queries: Sequence[_Query], limit: int, allowed: npt.NDArray[np.uint8], num_threads: int
) -> list[npt.NDArray[np.uint64]]:
    """Return the sorted keys of the best `limit` codes of each query. Several queries are scanned in one thread."""
    tables = aligned_bytes(len(queries) * len(queries[0].tables)).reshape(len(queries), -1)
    for number, query in enumerate(queries):
        tables[number], query.lists[:, 5] = query.tables, number
    room = max(1, min(2 * limit, max(query.num_codes for query in queries)))
    counts = np.zeros((len(queries), max(query.most for query in queries) + 1), dtype=np.int32)
    keys = np.empty((len(queries), room), dtype=np.uint64)
    kept = [_Kept(counts, keys, np.zeros((len(queries), 3), dtype=np.int64))]
    firsts = [len(query.lists) // _FIRST_SHARE for query in queries]
    first, rest = (
        np.concatenate(parts)
        for parts in zip(*(np.split(query.lists, [at]) for query, at in zip(queries, firsts, strict=True)), strict=True)
    )
    kept[0].scan(first, tables, allowed, limit)
    if len(queries) > 1:
        # A list's codes stay in the processor's cache for all that look at it.
        rest = rest[np.argsort(rest[:, 0], kind="stable")]
    kept += [kept[0].fresh() for _ in range(num_threads - 1)]
    shares = deque((each, rest[number::num_threads].copy()) for number, each in enumerate(kept))
    run_in_threads(
        lambda: [each.scan(share, tables, allowed, limit) for each, share in taken_from(shares)], num_threads
    )
    return [
        np.sort(np.concatenate([each.keys[number, : each.states[number, 0]] for each in kept]))[:limit]
        for number in range(len(queries))
    ]


def _read(keys: npt.NDArray[np.uint64], query: _Query) -> tuple[Floats, Ints]:
    """Return the scores and rows that the keys stand for."""
    from mvindex.kernels.fast_scan import read_keys

    sums, rows = np.empty(len(keys), dtype=np.int64), np.empty(len(keys), dtype=np.int64)
    read_keys(keys, query.lists, sums, rows)
    return (sums / query.scale + query.base).astype(np.float32), rows


def _load() -> None:
    """Call the loops for next to nothing, which loads or compiles them."""
    from mvindex.kernels.fast_scan import describe_lists, read_keys, scan_lists, score_groups

    none, floats = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
    score_groups(np.empty((0, 4), dtype=np.int64), floats, floats, none)
    lists, keys = np.empty((0, 6), dtype=np.int64), np.empty((1, 1), dtype=np.uint64)
    describe_lists(np.empty((0, 3), dtype=np.int64), none, floats, 1.0, lists)
    counts, states = np.zeros((1, 1), dtype=np.int32), np.zeros((1, 3), dtype=np.int64)
    scan_lists(lists, aligned_bytes(64).reshape(1, -1), _NO_BITS, 1, counts, keys, states)
    read_keys(keys[0, :0], lists, none, none)
