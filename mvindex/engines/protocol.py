"""What the search loop knows of an engine: two protocols and the arithmetic that their proofs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from mvindex.engines.ram import memory_bytes
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.scoring.aggregate import Scoring, sensitivity
from mvindex.store.snapshot import Snapshot

# How an approximate engine is searched: names of its own, such as probes or fetch, with whole numbers.
Search: TypeAlias = Mapping[str, int]

# Of ivf kinds; beyond, training would take longer than any search saves.
MAX_LISTS = 1 << 17


class Kind(Enum):
    """How an index is searched."""

    EXACT = "exact"
    FLAT = "flat"
    HNSW = "hnsw"
    IVF_FLAT = "ivf-flat"
    IVF_SQ8 = "ivf-sq8"
    IVF_PQ = "ivf-pq"
    IVF_RABITQ = "ivf-rabitq"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How an engine is built.

    prune_views: leave out what kept_views() does at that distance; lists: how many lists an IVF kind has, None for the
    usual number. work: a directory where an unfinished build keeps what it has, to go on there after a crash; it may
    hold what an earlier build of other options left. trained: a file that train() wrote, whose lists and codes are used
    instead of own ones. on_progress: told what is being done, how much of it is, of what.
    """

    work: Path
    prune_views: float | None = None
    lists: int | None = None
    trained: Path | None = None
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do, known before it is called.

    is_exact: its ranking is that of all views it holds, within error(); max_limit: rows a search may ask for.
    can_filter: it takes an allowed mask; can_delete: it can drop rows without being built again. Where it is not exact,
    a search for k documents first asks for max(k * over_fetch, least_limit) rows.
    """

    is_exact: bool
    max_limit: int | None = None
    over_fetch: int = 4
    least_limit: int = 1
    can_filter: bool = True
    can_delete: bool = False


class Candidates(NamedTuple):
    """Documents that may be among the best, for each query: rows[starts[i]:starts[i + 1]] for query i.

    upper: (m,) float64, what each document's score is at most, before it is rounded to float32.
    """

    starts: Ints
    rows: Ints
    upper: Doubles

    @classmethod
    def joined(cls, parts: Sequence[Candidates]) -> Candidates:
        """The candidates of the parts' queries, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        counts = np.concatenate([np.diff(part.starts) for part in parts])
        rows, upper = (np.concatenate([part[column] for part in parts]) for column in (1, 2))
        return cls(np.append(0, np.cumsum(counts)), rows, upper)

    def each(self) -> Iterator[Candidates]:
        """The candidates of each query alone."""
        for begin, end in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            yield Candidates(np.array([0, end - begin]), self.rows[begin:end], self.upper[begin:end])


class ScanEngine(Protocol):
    """Looks at every allowed document: the candidates of a query provably hold its top_k."""

    def candidates(
        self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools, scoring: Scoring
    ) -> Candidates:
        """Document rows that hold each query's top_k among the allowed, ties at the end included.

        queries: (q, d) float32 of norm up to MAX_NORM; allowed: (num_rows,) bool.
        """
        ...


class RankingEngine(Protocol):
    """Ranks views of document rows [0, num_rows) by score; the search loop makes documents of them.

    It holds all of a document's views, or at least one and none but near-duplicates are left out: see error().
    """

    capabilities: Capabilities
    num_rows: int

    @property
    def search_settings(self) -> Search:
        """How it is searched now."""
        ...

    def choices(self) -> Sequence[Search]:
        """Settings of a search worth trying, for `tune`; none where nothing can be chosen."""
        ...

    def with_search(self, search: Search) -> RankingEngine:
        """The same engine, sharing all that it holds, searched with these settings."""
        ...

    def search(self, queries: Floats, limit: int, allowed_views: Bools | None, turn: int = 0) -> tuple[Floats, Ints]:
        """The best views of each query: scores (q, m) float32 falling, rows (q, m) int64; -inf and -1 where missing.

        m <= limit. allowed_views: (views of those documents,) bool, or None for all. An exact ranking gives fewer than
        limit rows only where it holds no more that are allowed. turn: how often the same queries were asked before with
        a lower limit, and gave too few documents: an approximate engine looks further each time.
        """
        ...

    def error(self, queries: Floats) -> Doubles:
        """How far a document's best view may score above the best that search() has for it, (q,).

        That is how far a score may be off, plus what views left out may score above the held one that stands for them.
        Infinite where nothing is known.
        """
        ...


class EngineFactory(Protocol):
    """What an entry point of the group mvindex.engines names: builds and opens ranking engines of some kinds."""

    kinds: frozenset[Kind]

    def train(self, kind: Kind, snapshots: Sequence[Snapshot], file: Path, options: BuildOptions) -> None:
        """Nothing; what builds of this kind learn stands in the file, learnt from the views of all the snapshots."""
        ...

    def build(self, kind: Kind, snapshot: Snapshot, directory: Path, options: BuildOptions) -> Mapping[str, Any]:
        """What open() needs (JSON); the engine's files stand in the directory, not yet fsynced.

        "num_views" says how many views are held.
        """
        ...

    def open(
        self, kind: Kind, directory: Path, settings: Mapping[str, Any], device: str | None = None
    ) -> RankingEngine:
        """The engine built before. device: where it should search, as torch names devices; None for the usual."""
        ...


def sum_error(dim: int, unit_roundoff: float = 2.0**-24) -> float:
    """The relative error gamma_d of an inner product of d terms in any order, doubled for kernels that round products.

    |fl(x . y) - x . y| <= gamma_d |x| |y| (Higham 2002, eq. 3.5, with Cauchy-Schwarz).
    """
    if 2 * dim * unit_roundoff >= 1:
        return float("inf")
    return 2 * dim * unit_roundoff / (1 - 2 * dim * unit_roundoff)


def underflow_error(dim: int) -> float:
    """The absolute error from products and terms below float32's normal range, when |q_i| <= 1."""
    return 4 * dim * 2.0**-126


def rounding_slack(queries: Floats) -> Doubles:
    """The step of float32's smallest numbers in the units of scaled_queries(), (q,).

    Scores are rounded to float32 before they are compared: what differs by less than that may tie.
    """
    return np.ldexp(2.0**-149, query_exponents(queries))


def scaled_queries(queries: Floats) -> tuple[Floats, Doubles]:
    """Queries times a power of two so that their largest entry lies in [0.5, 1), and the norms of the result.

    A power of two changes no order and, above float32's smallest numbers, no bit; thresholds need no rescaling
    because scans compare scores of one query with each other only.
    """
    scaled = np.ldexp(queries.astype(np.float64), query_exponents(queries)[:, None])
    return scaled.astype(np.float32), np.sqrt(np.einsum("ij,ij->i", scaled, scaled)) * (1 + 1e-9)


def scaled_temperatures(scoring: Scoring, queries: Floats) -> Doubles:
    """DRPQ's temperature in the units of scaled_queries(), (q,), kept where neither it nor its inverse overflows.

    That changes nothing that can be seen: gaps of scores are 0 or far above 1e-300, and far below 1e300.
    """
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(np.ldexp(scoring.temperature, query_exponents(queries)), 1e-300, 1e300)


def query_exponents(queries: Floats) -> Ints:
    """The powers of two that scaled_queries() multiplies by, (q,)."""
    largest = np.abs(queries).max(axis=1, initial=0.0)
    return np.where(largest > 0, -np.frexp(largest)[1], 0)


def flat_error(queries: Floats, max_norm: float, radius: float = 0.0) -> Doubles:
    """How far a float32 inner product of each query with a view of at most max_norm may be off, (q,).

    radius: how far a view left out may lie from the one that stands for it; by Cauchy-Schwarz it scores at most
    radius |q| more.
    """
    dim = queries.shape[1]
    wide = queries.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide)) * (1 + 1e-9)
    tiny = underflow_error(dim) * (1 + np.abs(wide).max(axis=1, initial=0.0) + max_norm)
    error: Doubles = norms * (max_norm * (sum_error(dim) + 2.0**-23) + radius) + tiny
    return error


def sensitivities_up_to(max_views: int) -> Doubles:
    """DRPQ's sensitivity for 0 to max_views views, (max_views + 1,); above 64 that of the next power of two."""
    few = [sensitivity(max(views, 1)) for views in range(min(max_views, 64) + 1)]
    if max_views <= 64:
        return np.array(few)
    powers = np.arange(7, int(max_views - 1).bit_length() + 1)
    many = np.repeat([sensitivity(2 ** int(power)) for power in powers], 2 ** (powers - 1))
    return np.concatenate([few, many])[: max_views + 1]


def aggregate_error(num_views: int | Ints, sizes: Any) -> Any:
    """How far DRPQ's aggregate in float32 may be from that of the same scores, for scores of at most `sizes`.

    M - sum_j w_j g_j / sum_j w_j with g_j = M - s_j, w_j = exp(-g_j / T): scores and gaps are off by u of 2 sizes,
    weights by (3 g_j / T + 16) u, sums by k u; and w_j g_j / T <= g_j / e. Together below (8 k + 64) 4 u sizes.
    """
    return (8 * num_views + 64) * 2.0**-22 * sizes


def cache_bytes() -> int:
    """A quarter of the memory that this process may use."""
    return memory_bytes() // 4
