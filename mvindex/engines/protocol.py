"""The protocols of engines, as the search loop uses them, and the arithmetic that their proofs share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from mvindex.errors import ConfigError, EngineError
from mvindex.kernels.score import Scoring, lipschitz_constant
from mvindex.kernels.threads import memory_bytes
from mvindex.records import Bools, Doubles, Floats, Ints, ProgressCallback, no_progress
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedViews

if TYPE_CHECKING:
    from typing_extensions import Self, TypeIs

# Parameters of a search by an approximate engine, such as nprobe or k_factor, by the engine's own names.
Search: TypeAlias = Mapping[str, int]

# The kind that every index has: the certified scan of the store, which needs no engine.
EXACT = "exact"
# Of ivf kinds; beyond, training would take longer than any search saves.
MAX_NLIST = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A whole number that a kind is built with.

    Args:
        name: As the field calls it: nlist, M.
        help: One line for people.
        default: The value if none is given; None where it depends on the views.
        least: The least value accepted.
        most: The greatest value accepted.

    """

    name: str
    help: str
    default: int | None
    least: int = 1
    most: int = MAX_NLIST

    def check(self, value: object) -> None:
        """Raise ConfigError unless the value is a whole number within the limits."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise ConfigError(
                f"{self.name}: expected a whole number from {self.least} to {self.most}, got {value!r:.40}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBytes:
    """The bytes of a view in an engine: its code, and its row number and links beside it.

    is_in_blocks: codes stand 32 at a time.
    building: those while the engine is built, where they are more than both.
    """

    code: float
    beside: float = 0.0
    is_in_blocks: bool = False
    building: float = 0.0

    @property
    def total(self) -> float:
        """Both together, without what blocks leave empty."""
        return self.code + self.beside


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """An engine of the same kind that a build goes on from, its files checked.

    Args:
        directory: Its files.
        settings: Those for EngineKind.open().
        rows: (document rows that it covers,) int64, the row of each of them now, -1 for one that is gone.
        views: Those that it was built over, of these documents and later ones.

    """

    directory: Path
    settings: Mapping[str, Any]
    rows: Ints
    views: MappedViews

    def moved_views(self, views: MappedViews) -> npt.NDArray[Any]:
        """Return the row now of each view that it covers, -1 for one that is gone, (r,) int32; int64 beyond its range.

        EngineError where a document's views are not as many as they were.
        """
        dtype = np.int32 if views.num_views < 1 << 31 else np.int64
        moved, filled = np.empty(self.views.view_start(len(self.rows)), dtype=dtype), 0
        for begin, counts in self.views.each_counts():
            rows = self.rows[begin : begin + len(counts)]
            counts, is_gone = counts[: len(rows)], rows < 0
            firsts = views.starts[rows]
            if ((views.starts[rows + 1] - firsts != counts) & ~is_gone).any():
                raise EngineError(
                    f"{self.directory}: expected an engine of the documents in the index, got one of others"
                )
            # From a document's first view then to its first view now.
            part = np.arange(counts.sum()) + np.repeat(firsts - (np.cumsum(counts) - counts), counts)
            part[np.repeat(is_gone, counts)] = -1
            moved[filled : filled + len(part)] = part
            filled += len(part)
        return moved


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How an engine is built.

    Args:
        work: A directory where an unfinished build stores its progress, to resume there after a crash. It may hold what
            an earlier build with other options left.
        parameters: The kind's parameters that were given, within their limits.
        trained: A file that EngineKind.train() wrote, to be used instead of training.
        base: What the build goes on from; None for kinds that do not extend, and to build from nothing.
        on_progress: Called with the step, how much of it is done, and its total.

    """

    work: Path
    parameters: Mapping[str, int] = field(default_factory=dict)
    trained: Path | None = None
    base: Base | None = None
    on_progress: ProgressCallback = no_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapabilities:
    """The capabilities of an engine, known before it is called.

    is_exact: its ranking is that of all its views, within error(); max_limit: the largest limit of a search.
    can_filter: it takes an allowed mask; ranks_documents: it is a DocumentEngine. Where it is not exact, a search for k
    documents first takes max(k * over_fetch, least_limit) rows.
    """

    is_exact: bool
    max_limit: int | None = None
    over_fetch: int = 4
    least_limit: int = 1
    can_filter: bool = True
    ranks_documents: bool = False


class Candidates(NamedTuple):
    """Documents that may be among the best, for each query: rows[starts[i]:starts[i + 1]] for query i.

    upper: (m,) float64, what each document's score is at most, before it is rounded to float32.
    """

    starts: Ints
    rows: Ints
    upper: Doubles

    @classmethod
    def joined(cls, parts: Sequence[Candidates]) -> Candidates:
        """Return the candidates of the parts' queries, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        counts = np.concatenate([np.diff(part.starts) for part in parts])
        rows, upper = (np.concatenate([part[column] for part in parts]) for column in (1, 2))
        return cls(np.append(0, np.cumsum(counts)), rows, upper)

    def each(self) -> Iterator[Candidates]:
        """Yield the candidates of each query."""
        for begin, end in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            yield Candidates(np.array([0, end - begin]), self.rows[begin:end], self.upper[begin:end])


class ScanRequest(NamedTuple):
    """The documents that a scan looks for: top_k of the allowed, (num_rows,) bool, by a scoring."""

    top_k: int
    allowed: Bools
    scoring: Scoring


class ScanEngine(Protocol):
    """Looks at every allowed document: the candidates of a query provably hold its top_k.

    at_once: So many queries are given to it together, where that is more than for other searches.
    """

    at_once: int

    def candidates(
        self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools, scoring: Scoring
    ) -> Candidates:
        """Return document rows that hold each query's top_k among the allowed, ties at the end included.

        queries: (q, d) float32 of norm up to MAX_NORM; allowed: (num_rows,) bool.
        """
        ...

    def copy_bytes(self) -> int:
        """Return the bytes of the copies of views that the scan has in memory of its own."""
        ...

    def mapped_bytes(self) -> int:
        """Return the bytes of the copies that are mapped from the file of copies, which all processes share."""
        ...


class TunedEngine(Protocol):
    """An engine over document rows [0, num_rows), with capabilities and search parameters that `tune` sets."""

    capabilities: EngineCapabilities
    num_rows: int

    @property
    def search_settings(self) -> Search:
        """How it is searched now."""
        ...

    def choices(self) -> Sequence[Search]:
        """Return the search parameters that `tune` tries; none where nothing can be chosen."""
        ...

    def with_search(self, search: Search) -> Self:
        """Return the same engine with these search parameters, sharing all data."""
        ...


@dataclass(frozen=True, slots=True)
class OneOfShards:
    """How an approximate engine of one shard is searched beside those of others.

    keep: the rows that it returns at most, where the limit is that of all shards. found: what engines find for these
    queries that others can use, under keys of their own.
    """

    keep: int
    found: dict[Hashable, Any]


class RankingEngine(TunedEngine, Protocol):
    """Ranks all views by score; the search loop makes documents of them."""

    def search(  # noqa: PLR0913 - of these each has its own default or none
        self,
        queries: Floats,
        limit: int,
        allowed_views: Bools | None,
        turn: int = 0,
        shards: OneOfShards | None = None,
    ) -> tuple[Floats, Ints]:
        """Return the best views of each query: scores (q, m) float32, descending, rows (q, m); -inf and -1 if missing.

        m <= limit. allowed_views: (views of those documents,) bool, or None for all. An exact ranking gives fewer than
        limit rows only where it holds no more that are allowed. turn: how often the same queries were searched before
        with a lower limit, and gave too few documents: an approximate engine looks further each time. shards: given to
        an approximate engine of one shard of several.
        """
        ...

    def error(self, queries: Floats) -> Doubles:
        """Return how far a view may score above what search() has for it, (q,); infinite where nothing is known."""
        ...


class DocumentEngine(TunedEngine, Protocol):
    """Finds documents itself, and says so by its capability ranks_documents; never exact."""

    @property
    def measured(self) -> Mapping[str, Any] | None:
        """Return what its build has measured, see SelfMeasured: the scan answers where it was faster; None: never."""
        ...

    def is_ready(self) -> bool:
        """Return whether it can be searched now; documents are scanned while it is not, such as while it compiles."""
        ...

    def documents(self, queries: Floats, top_k: int, allowed: Bools | None, scoring: Scoring) -> npt.NDArray[np.int32]:
        """Return distinct document rows for each query, (q, m), the likeliest first, to be scored by the caller.

        -1 stands behind the last; they may be fewer than top_k. queries: (q, d) float32; allowed: (num_rows,) bool, or
        None for all.
        """
        ...


# What a kind opens as.
Engine: TypeAlias = RankingEngine | DocumentEngine


def ranks_documents(engine: Engine) -> TypeIs[DocumentEngine]:
    """Return whether the engine finds documents itself."""
    return engine.capabilities.ranks_documents


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """A kind of engine: a name, and how engines of that name are built and opened.

    An entry point of the group mvindex.engines, named as the kind, leads to one; register_engine() adds one as well.

    Args:
        name: What users call it, lower case: hnsw, ivf-pq.
        help: One line for people.
        build: Called with a snapshot, an existing empty directory and options. Writes the engine's files to the
            directory, which need not be fsynced, and returns settings (JSON) for `open`: "num_views", the views that it
            holds, and where there are parameters, "parameters" with the values used.
        open: Called with the directory, the settings and a device, as torch names devices, or None. The settings also
            have "built_rows", the document rows [0, built_rows) that it covers, and "search" where search parameters
            were tuned, and "files", the names that the catalog has checksums of.
        checks: Called with the settings and the device; returns the files that `open` reads in parts and checks
            itself, each part when it is first read. All others are checked before. None where there are none.
        train: Called with snapshots, a new file and options. Writes to the file what builds of several shards share.
            None for kinds that are not trained.
        parameters: What `build` takes in BuildOptions.parameters.
        view_bytes: Called with the dimensions of a view; what `plan` and the automatic choice reckon with. None where
            neither knows the kind.
        extends: Whether `build` can go on from BuildOptions.base, so that new documents are taken in without building
            from nothing.

    """

    name: str
    help: str
    build: Callable[[Snapshot, Path, BuildOptions], Mapping[str, Any]]
    open: Callable[[Path, Mapping[str, Any], str | None], Engine]
    checks: Callable[[Mapping[str, Any], str | None], Collection[str]] | None = None
    train: Callable[[Sequence[Snapshot], Path, BuildOptions], None] | None = None
    parameters: tuple[Parameter, ...] = ()
    view_bytes: Callable[[int], ViewBytes] | None = None
    extends: bool = False

    def check_parameters(self, values: Mapping[str, int]) -> None:
        """Raise ConfigError for a parameter that the kind does not have, or a value beyond its limits."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name, value in values.items():
            if name not in known:
                has = f"it has {', '.join(known)}" if known else "it has no parameters"
                raise ConfigError(f"kind {self.name!r}: has no parameter {name!r}; {has}")
            known[name].check(value)


def sum_error(dim: int) -> float:
    """Return the relative error gamma_d of an inner product in any order, doubled for kernels that round products.

    |fl(x . y) - x . y| <= gamma_d |x| |y| (Higham 2002, eq. 3.5, with Cauchy-Schwarz).
    """
    rounding = 2 * dim * 2.0**-24
    return rounding / (1 - rounding) if rounding < 1 else float("inf")


def underflow_error(dim: int) -> float:
    """Return the absolute error from products and terms below float32's normal range, when |q_i| <= 1."""
    return 4 * dim * 2.0**-126


def rounding_slack(exponents: Ints) -> Doubles:
    """Return the step of float32's smallest numbers in the units of scaled_queries(), (q,), of query_exponents().

    Scores are rounded to float32 before they are compared: what differs by less than that may tie.
    """
    return np.ldexp(2.0**-149, exponents)


def scaled_queries(queries: Floats, exponents: Ints) -> tuple[Floats, Doubles]:
    """Return queries times a power of two, see query_exponents(), and their norms, (q,).

    A power of two changes no order and, above float32's smallest numbers, no bit; thresholds need no rescaling
    because scans compare scores of one query with each other only.
    """
    scaled = np.ldexp(queries.astype(np.float64), exponents[:, None])
    return scaled.astype(np.float32), np.sqrt(np.einsum("ij,ij->i", scaled, scaled)) * (1 + 1e-9)


def scaled_temperatures(scoring: Scoring, exponents: Ints) -> Doubles:
    """Return DRPQ's temperature in the units of scaled_queries(), (q,).

    It is clipped so that neither it nor its inverse overflows. That changes no result: gaps of scores are 0 or far
    above 1e-300, and far below 1e300.
    """
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(np.ldexp(scoring.temperature, exponents), 1e-300, 1e300)


def query_exponents(queries: Floats) -> Ints:
    """Return the powers of two by which each query's largest entry comes to lie in [0.5, 1), (q,)."""
    largest = np.abs(queries).max(axis=1, initial=0.0)
    return np.where(largest > 0, -np.frexp(largest)[1], 0)


def flat_error(queries: Floats, max_norm: float) -> Doubles:
    """Return how far a float32 inner product of each query with a view of norm up to max_norm may be off, (q,).

    2^-23 covers the rounding of scores to float32, 2^-24, and that of their float64 sums.
    """
    dim = queries.shape[1]
    wide = queries.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide)) * (1 + 1e-9)
    tiny = underflow_error(dim) * (1 + np.abs(wide).max(axis=1, initial=0.0) + max_norm)
    error: Doubles = norms * max_norm * (sum_error(dim) + 2.0**-23) + tiny
    return error


def lipschitz_constants_up_to(max_views: int) -> Doubles:
    """Return DRPQ's Lipschitz constants for 0 to max_views views, (max_views + 1,); powers of two above 64."""
    few = [lipschitz_constant(max(views, 1)) for views in range(min(max_views, 64) + 1)]
    if max_views <= 64:
        return np.array(few)
    powers = np.arange(7, int(max_views - 1).bit_length() + 1)
    many = np.repeat([lipschitz_constant(2 ** int(power)) for power in powers], 2 ** (powers - 1))
    return np.concatenate([few, many])[: max_views + 1]


def aggregate_error(num_views: int | Ints, sizes: Any) -> Any:
    """Return how far DRPQ's aggregate in float32 may be from that of the same scores, for scores of at most `sizes`.

    M - sum_j w_j g_j / sum_j w_j with g_j = M - s_j, w_j = exp(-g_j / T): scores and gaps are off by u of 2 sizes,
    weights by (3 g_j / T + 16) u, sums by k u; and w_j g_j / T <= g_j / e. Together below (8 k + 64) 4 u sizes.
    """
    return (8 * num_views + 64) * 2.0**-22 * sizes


def cache_bytes() -> int:
    """Return a quarter of the memory that this process may use."""
    return memory_bytes() // 4
