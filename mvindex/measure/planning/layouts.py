"""Lay out an index that is to be built: what each kind takes, whether it fits, and which one is recommended."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mvindex.engines.auto import (
    CAGRA_LEAST,
    CLONED_KINDS,
    CUVS_KINDS,
    GROUPED_NLIST,
    IVF_KINDS,
    LINKED_VIEWS,
    SCANNED_BYTES,
    default_nlist,
)
from mvindex.engines.protocol import EXACT
from mvindex.errors import ConfigError
from mvindex.measure.planning.sizes import (
    REFERENCE_CORES,
    Collection,
    EngineBytes,
    Recall,
    StoreBytes,
    Workload,
    build_seconds,
    engine_bytes,
    expected_recall,
    gpu_bytes,
    has_copies_file,
    nprobe_for,
    query_seconds,
    scan_bytes,
    store_bytes,
)
from mvindex.measure.planning.units import format_bytes
from mvindex.store.snapshot import MAX_DIM

# Shares of a machine's memory: engine and store, a running build, the copies of the exact scan, and these on a GPU.
# The rest is for the page cache, queries and the system.
RESIDENT_SHARE, BUILD_SHARE, COPIES_SHARE, GPU_SHARE = 0.75, 0.9, 0.25, 0.75
_MAX_SHARDS, _MAX_VIEWS = 4096, 65_536
_MIN_NLIST = 1024
# The preferred kind of those that need equally many machines, as `mvindex build` prefers them.
KINDS = (EXACT, "flat", "graph", "hnsw", "ivf-flat", "ivf-sq8", "ivf-pq", "ivf-rabitq")
_ORDER = ("graph", "ivf-pq", "ivf-sq8", "ivf-flat", "hnsw", "ivf-rabitq", "flat", EXACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The memory, disk, cores and GPUs of each machine. disk_bytes None: not checked; gpu_bytes: of each GPU."""

    ram_bytes: int
    disk_bytes: int | None = None
    cores: int = REFERENCE_CORES
    gpus: int = 0
    gpu_bytes: int = 80 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The collection and machines to plan for; scan: the exact scan to plan for (see engines.scan_name).

    Raises ConfigError for views, dimensions, top_k or a target recall that cannot be planned.
    """

    collection: Collection
    machine: Machine
    scan: str
    top_k: int = 10
    target_recall: float = 0.98

    def __post_init__(self) -> None:
        views, dim, documents = self.collection.views, self.collection.dim, self.collection.documents
        if not 1 <= views <= _MAX_VIEWS:
            raise ConfigError(
                f"--views: expected views per document, on average, from 1 to {_MAX_VIEWS}, got {views:g}"
            )
        if not 1 <= dim <= MAX_DIM:
            raise ConfigError(f"--dim: expected a whole number from 1 to {MAX_DIM}, got {dim}")
        if not 1 <= self.top_k <= documents:
            raise ConfigError(f"--top-k: expected 1 to {documents}, the number of documents, got {self.top_k}")
        if not 0 < self.target_recall <= 1:
            raise ConfigError(
                f"--target-recall: expected a share above 0 and up to 1, such as 0.97, got {self.target_recall:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way to lay out the collection, with one machine per shard; bytes and seconds are those of the largest shard.

    on_gpu: the copies of the exact scan are there, or one of the engine, which stays in memory too.
    lacks: what does not fit, empty when all does.
    build_s, query_s: of a build and of a single query on the reference machine, None on a GPU.
    """

    kind: str
    shards: int
    on_gpu: bool
    nlist: int
    is_default_nlist: bool
    nprobe: int
    shard: Collection
    store: StoreBytes
    engine: EngineBytes
    recall: Recall
    build_s: float | None = None
    query_s: float | None = None
    lacks: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Return the kind, with the GPU where one is used."""
        return f"{self.kind}, GPU" if self.on_gpu else self.kind

    @property
    def resident(self) -> int:
        """Return the bytes of engine and store that always stay in a machine's memory."""
        return self.store.resident + (0 if self.on_gpu and self.kind == EXACT else self.engine.resident)

    @property
    def gpu_bytes(self) -> int:
        """Return the bytes of the copy on a GPU; 0 without one."""
        return gpu_bytes(self.kind, self.shard, self.engine) if self.on_gpu else 0

    @property
    def building(self) -> int:
        """Return the most bytes in memory during a build."""
        return self.engine.building + self.store.resident

    @property
    def building_disk(self) -> int:
        """Return the most bytes on disk during a build: some unfinished engines lie beside the finished one."""
        return self.store.disk + self.engine.disk * (2 if self.kind in (EXACT, *IVF_KINDS) else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All layouts, and the recommended one with the reason; None where nothing fits."""

    request: PlanRequest
    layouts: Sequence[Layout]
    recommended: Layout | None
    why: str


def make_plan(request: PlanRequest) -> Plan:
    """Return the plan."""
    layouts = [
        _with_times(request, layout) for kind, on_gpu in _kinds(request) for layout in _of_kind(request, kind, on_gpu)
    ]
    fitting = [layout for layout in layouts if not layout.lacks]
    chosen, why = _recommend(request, fitting) if fitting else (None, "nothing fits")
    return Plan(request=request, layouts=layouts, recommended=chosen, why=why)


def _kinds(request: PlanRequest) -> Iterator[tuple[str, bool]]:
    for kind in KINDS:
        if kind != "graph" or request.collection.num_views <= LINKED_VIEWS:
            yield kind, False
        if request.machine.gpus and kind in {EXACT, *CLONED_KINDS, *CUVS_KINDS}:
            yield kind, True


def _of_kind(request: PlanRequest, kind: str, on_gpu: bool) -> Iterator[Layout]:
    """Yield the layout without shards and, where that does not fit, the one with the fewest shards that do."""
    whole = _layout(request, kind, on_gpu, 1)
    yield whole
    if not whole.lacks:
        return
    low, high = 1, 2
    while _layout(request, kind, on_gpu, high).lacks:
        low, high = high, high * 2
        if high > min(_MAX_SHARDS, request.collection.documents):
            return
    # The bytes of a kind fall with the number of shards but for the lists, whose number is a power of two.
    candidates = (_layout(request, kind, on_gpu, shards) for shards in range(low + 1, high + 1))
    yield next(layout for layout in candidates if not layout.lacks)


def _layout(request: PlanRequest, kind: str, on_gpu: bool, shards: int) -> Layout:
    shard, all_views = request.collection.shard(shards), request.collection.num_views
    store = store_bytes(shard)
    nlist = _nlist(request, kind, shard, store)
    recall, share = expected_recall(kind, shard.num_views, request.target_recall, request.top_k)
    if kind == EXACT:
        # Views stay on a GPU as they are stored, where its torch multiplies fp16 into float32.
        scan = f"torch {shard.view_type.value} on cuda" if on_gpu else request.scan
        copies = scan_bytes(scan, shard)
        engine = EngineBytes(disk=copies if has_copies_file(scan, shard) else 0, resident=copies, building=0)
    else:
        engine = engine_bytes(kind, shard, nlist, all_views)
    layout = Layout(
        kind=kind,
        shards=shards,
        on_gpu=on_gpu,
        nlist=nlist,
        is_default_nlist=nlist == default_nlist(all_views),
        nprobe=nprobe_for(share, nlist) if nlist else 0,
        shard=shard,
        store=store,
        engine=engine,
        recall=recall,
    )
    return replace(layout, lacks=tuple(_lacks(request.machine, layout)))


def _with_times(request: PlanRequest, layout: Layout) -> Layout:
    if layout.on_gpu:
        return layout
    load = Workload(
        kind=layout.kind,
        num_views=layout.shard.num_views,
        all_views=request.collection.num_views,
        dim=layout.shard.dim,
        nlist=layout.nlist,
        nprobe=layout.nprobe,
        top_k=request.top_k,
    )
    return replace(layout, build_s=build_seconds(load, request.machine.cores), query_s=query_seconds(load))


def _nlist(request: PlanRequest, kind: str, shard: Collection, store: StoreBytes) -> int:
    """Return the default nlist for the views of all shards, halved until its training fits in memory."""
    if kind not in IVF_KINDS:
        return 0
    all_views = request.collection.num_views
    nlist = default_nlist(all_views)
    room = BUILD_SHARE * request.machine.ram_bytes - store.resident
    while nlist > _MIN_NLIST and engine_bytes(kind, shard, nlist, all_views).training > room:
        nlist //= 2
    return nlist


def _lacks(machine: Machine, layout: Layout) -> Iterator[str]:
    """Yield what does not fit: what it takes, and what there is."""
    ram = machine.ram_bytes
    if layout.on_gpu:
        yield from _excess("copies on the GPU", layout.gpu_bytes, GPU_SHARE * machine.gpu_bytes)
        if layout.nlist >= GROUPED_NLIST:
            yield f"lists in groups, from {GROUPED_NLIST:,} on, are searched on the CPU"
        if layout.kind == "ivf-pq" and layout.shard.dim % 4 > 0:
            yield f"cuVS wants dimensions that 4 divides, not {layout.shard.dim}"
        if layout.kind == "hnsw" and layout.shard.num_views < CAGRA_LEAST:
            yield f"fewer than {CAGRA_LEAST:,} views are searched on the CPU"
    elif layout.kind == EXACT:
        yield from _excess("copies of the scan", layout.engine.resident, COPIES_SHARE * ram)
    yield from _excess("engine and store", layout.resident, RESIDENT_SHARE * ram)
    yield from _excess("building", layout.building, BUILD_SHARE * ram)
    if machine.disk_bytes is not None:
        yield from _excess("files during a build", layout.building_disk, machine.disk_bytes)


def _excess(what: str, needed: float, available: float) -> Iterator[str]:
    if needed > available:
        yield f"{what} {format_bytes(needed)} of {format_bytes(available)}"


def _recommend(request: PlanRequest, fitting: Sequence[Layout]) -> tuple[Layout, str]:
    """Return exact where that is fast or required; else the fewest machines that reach the target."""
    exact = [layout for layout in fitting if layout.kind == EXACT]
    if exact and request.target_recall >= 1:
        return min(exact, key=lambda layout: layout.shards), "only the certified scan guarantees a recall of 1"
    if exact and request.collection.num_views * request.collection.dim <= SCANNED_BYTES:
        return exact[0], "the certified scan takes some milliseconds; an engine would save little"
    best = min(fitting, key=lambda layout: _preference(request, layout))
    machines = "one machine is enough" if best.shards == 1 else f"no kind fits on fewer than {best.shards} machines"
    doubt = ", though the target recall may be out of reach" if _is_short(request, best) else ""
    return best, f"{machines}, and of the kinds that need as many it is the default choice{doubt}"


def _preference(request: PlanRequest, layout: Layout) -> tuple[bool, int, float]:
    """Return a sort key, the preferred layout first."""
    place = math.inf if layout.on_gpu else float(_ORDER.index(layout.kind))
    return _is_short(request, layout), layout.shards, place


def _is_short(request: PlanRequest, layout: Layout) -> bool:
    return layout.recall.high < request.target_recall or layout.recall.low is None


def commands(layout: Layout, request: PlanRequest) -> list[str]:
    """Return the commands that make the layout, line by line."""
    index = "--index corpus.mvx"
    shards = f" --shards {layout.shards}" if layout.shards > 1 else ""
    collection = request.collection
    stored = f"--views {math.ceil(collection.views)} --dtype {collection.view_type.value}"
    lines = [f"mvindex ingest corpus.tsv {index} {stored}{shards}"]
    if layout.kind != EXACT:
        nlist = "" if layout.is_default_nlist or not layout.nlist else f" --nlist {layout.nlist}"
        lines.append(f"mvindex build {index} --kind {layout.kind}{nlist}")
    if layout.kind not in (EXACT, "flat"):
        target = f"--target-recall {request.target_recall:g} --top-k {request.top_k}"
        lines.append(f"mvindex tune {index} {target} --queries questions.jsonl")
    return lines
