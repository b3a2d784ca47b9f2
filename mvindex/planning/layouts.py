"""The layouts of an index that is to be: what each takes, whether it fits, and which one is recommended."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mvindex.engines.auto import SCANNED_BYTES
from mvindex.engines.params import COARSE_KINDS, IVF_KINDS, usual_lists
from mvindex.engines.protocol import Kind
from mvindex.errors import ConfigError
from mvindex.planning.rates import Rates
from mvindex.planning.recall import Recall, expected_recall, share_of, wanted_share
from mvindex.planning.sizes import Collection, EngineBytes, StoreBytes, engine_bytes, scan_bytes, store_bytes
from mvindex.planning.times import Searched, Times, layout_times
from mvindex.planning.units import shown_bytes, shown_seconds
from mvindex.store.settings import MAX_DIM

# Of a machine's memory: what engine and store may take for good, what a build may take while it runs, and what the
# exact scan keeps of its copies. The rest is for the page cache, queries and the system.
RESIDENT_SHARE, BUILD_SHARE, COPIES_SHARE, GPU_SHARE = 0.75, 0.9, 0.25, 0.5
_MOST_SHARDS, _MOST_VIEWS = 4096, 65_536
_LEAST_LISTS = 1024
# Where nothing is timed: which kind is preferred of those that need equally many machines.
_ORDER = (Kind.IVF_PQ, Kind.IVF_SQ8, Kind.IVF_FLAT, Kind.HNSW, Kind.IVF_RABITQ, Kind.FLAT, Kind.EXACT)
_QUICK_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What each machine has. disk_bytes: None is not looked at; gpu_bytes: of each of so many GPUs."""

    ram_bytes: int
    disk_bytes: int | None = None
    gpus: int = 0
    gpu_bytes: int = 80 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be planned. scan: the exact scan's name (see engines.scan_name)."""

    held: Collection
    machine: Machine
    scan: str
    top_k: int = 10
    target_recall: float = 0.97


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way to hold the collection, on one machine a shard; bytes and times are those of the largest shard.

    on_gpu: the exact scan runs there; its copies are `engine`. lacks: what does not fit, empty when all does.
    """

    kind: Kind
    shards: int
    on_gpu: bool
    lists: int
    is_usual_lists: bool
    probes: int
    fetch: int
    shard: Collection
    store: StoreBytes
    engine: EngineBytes
    recall: Recall
    times: Times | None
    lacks: Sequence[str]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.kind.value} on a GPU" if self.on_gpu else self.kind.value

    @property
    def resident(self) -> int:
        """Bytes of engine and store in a machine's memory for good."""
        return self.store.resident + (0 if self.on_gpu else self.engine.resident)

    @property
    def building_disk(self) -> int:
        """Bytes on disk at most, while it is built: what was filled before stands beside the engine."""
        return self.store.disk + self.engine.disk * (2 if self.kind in IVF_KINDS else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All layouts, and the recommended one with the reason; None where nothing fits."""

    asked: Asked
    layouts: Sequence[Layout]
    recommended: Layout | None
    why: str
    rates: Rates | None


def make_plan(asked: Asked, rates: Rates | None = None) -> Plan:
    """The plan; times only where rates are given. ConfigError for a collection that no machine count is planned for."""
    layouts = [layout for kind, on_gpu in _ways(asked) for layout in _of_kind(asked, kind, on_gpu, rates)]
    fitting = [layout for layout in layouts if not layout.lacks]
    if not fitting:
        return Plan(asked=asked, layouts=layouts, recommended=None, why="nothing fits", rates=rates)
    chosen, why = _recommended(asked, fitting)
    return Plan(asked=asked, layouts=layouts, recommended=chosen, why=why, rates=rates)


def _ways(asked: Asked) -> Iterator[tuple[Kind, bool]]:
    yield Kind.EXACT, False
    if asked.machine.gpus:
        yield Kind.EXACT, True
    for kind in Kind:
        if kind is not Kind.EXACT:
            yield kind, False


def _of_kind(asked: Asked, kind: Kind, on_gpu: bool, rates: Rates | None) -> Iterator[Layout]:
    """Unsharded, and where that does not fit, with the fewest shards that do."""
    whole = _layout(asked, (kind, on_gpu), 1, rates)
    yield whole
    if not whole.lacks:
        return
    low, high = 1, 2
    while _layout(asked, (kind, on_gpu), high, None).lacks:
        low, high = high, high * 2
        if high > min(_MOST_SHARDS, asked.held.documents):
            return
    # A kind's bytes fall with the number of shards but for the lists, whose number goes in powers of two.
    fits = (shards for shards in range(low + 1, high + 1) if not _layout(asked, (kind, on_gpu), shards, None).lacks)
    yield _layout(asked, (kind, on_gpu), next(fits), rates)


def _layout(asked: Asked, way: tuple[Kind, bool], shards: int, rates: Rates | None) -> Layout:
    kind, on_gpu = way
    shard = asked.held.shard(shards)
    store = store_bytes(shard)
    lists = _lists(asked, kind, shard, store)
    share = wanted_share(kind, asked.target_recall, asked.top_k) if kind in IVF_KINDS else 1.0
    probes = math.ceil(share_of(share, lists) * lists) if kind in IVF_KINDS else 0
    fetch = 15 if kind in COARSE_KINDS else 4
    if kind is Kind.EXACT:
        copies = scan_bytes(_gpu_scan(on_gpu, asked), shard)
        engine = EngineBytes(disk=0, resident=copies, building=0)
    else:
        engine = engine_bytes(kind, shard.num_views, shard.dim, lists, asked.held.num_views)
    found = Layout(
        kind=kind,
        shards=shards,
        on_gpu=on_gpu,
        lists=lists,
        is_usual_lists=lists == usual_lists(asked.held.num_views),
        probes=probes,
        fetch=fetch,
        shard=shard,
        store=store,
        engine=engine,
        recall=expected_recall(kind, shard.num_views, share, asked.top_k),
        times=None,
        lacks=(),
    )
    found = replace(found, lacks=tuple(_lacks(asked.machine, found)))
    is_timed = rates is not None and f"{found.name} alone" in rates.scans
    return replace(found, times=_timed(asked, found, rates)) if rates is not None and is_timed else found


def _gpu_scan(on_gpu: bool, asked: Asked) -> str:
    """On GPUs the scan multiplies in float32."""
    return "torch fp32 on cuda" if on_gpu else asked.scan


def _lists(asked: Asked, kind: Kind, shard: Collection, store: StoreBytes) -> int:
    """The usual number for all shards' views, or half of it and so on, until they can be trained in the memory."""
    if kind not in IVF_KINDS:
        return 0
    lists = usual_lists(asked.held.num_views)
    room = BUILD_SHARE * asked.machine.ram_bytes - store.resident
    all_views = asked.held.num_views
    while lists > _LEAST_LISTS and engine_bytes(kind, shard.num_views, shard.dim, lists, all_views).building > room:
        lists //= 2
    return lists


def _lacks(machine: Machine, found: Layout) -> Iterator[str]:
    """What does not fit, each with what it takes and what there is."""
    ram = machine.ram_bytes
    if found.on_gpu:
        yield from _too_much("copies on the GPU", found.engine.resident, GPU_SHARE * machine.gpu_bytes)
    elif found.kind is Kind.EXACT:
        yield from _too_much("copies kept by the scan", found.engine.resident, COPIES_SHARE * ram)
    yield from _too_much("engine and store", found.resident, RESIDENT_SHARE * ram)
    yield from _too_much("building", found.engine.building + found.store.resident, BUILD_SHARE * ram)
    if machine.disk_bytes is not None:
        yield from _too_much("files while it is built", found.building_disk, machine.disk_bytes)


def _too_much(what: str, needed: float, there: float) -> Iterator[str]:
    if needed > there:
        yield f"{what}: {shown_bytes(needed)} of {shown_bytes(there)}"


def _timed(asked: Asked, found: Layout, rates: Rates) -> Times:
    spare = max(0.0, BUILD_SHARE * asked.machine.ram_bytes - found.resident)
    how = Searched(
        name=found.name,
        kind=found.kind,
        lists=found.lists,
        all_views=asked.held.num_views,
        probes=found.probes,
        fetch=found.fetch,
        top_k=asked.top_k,
        cached=min(1.0, spare / max(found.store.views, 1)),
    )
    return layout_times(rates, found.shard, found.engine, how)


def _recommended(asked: Asked, fitting: Sequence[Layout]) -> tuple[Layout, str]:
    """Exact where that is quick or wanted; else the fewest machines, then the target, then the fastest query."""
    exact = [layout for layout in fitting if layout.kind is Kind.EXACT]
    scanned = asked.held.num_views * asked.held.dim
    if exact and asked.target_recall >= 1:
        return min(exact, key=_machines), "only the certified scan finds everything for certain (target recall 1)"
    if exact and scanned <= SCANNED_BYTES:
        return exact[0], "the certified scan answers in some milliseconds, with proof; an engine would save little"
    if exact and exact[0].shards == 1 and exact[0].times and exact[0].times.alone.high <= _QUICK_S:
        took = shown_seconds(exact[0].times.alone.mid)
        return exact[0], f"the certified scan answers in {took}, with proof; an engine would save little"
    best = min(fitting, key=lambda layout: _preference(asked, layout))
    machines = "one machine is enough" if best.shards == 1 else f"no kind fits on fewer than {best.shards} machines"
    quick = "the fastest query" if best.times else "the usual choice"
    reached = "" if best.recall.high >= asked.target_recall else ", though the target may be out of its reach"
    return best, f"{machines}, and of those that need as many it has {quick}{reached}"


def _machines(layout: Layout) -> int:
    return layout.shards


def _preference(asked: Asked, layout: Layout) -> tuple[bool, int, float]:
    """The less the better: out of reach, machines, time or place in the order."""
    is_short = layout.recall.high < asked.target_recall or layout.recall.low == 0
    place = layout.times.alone.mid if layout.times else float(_ORDER.index(layout.kind))
    if layout.on_gpu and layout.times is None:
        place = math.inf
    return is_short, layout.shards, place


def check_asked(held: Collection, top_k: int) -> None:
    """Nothing; ConfigError for what cannot be planned."""
    if not 1 <= held.views <= _MOST_VIEWS:
        raise ConfigError(
            f"--views {held.views:g}: wanted the views of a document, on average, from 1 to {_MOST_VIEWS}"
        )
    if not 1 <= held.dim <= MAX_DIM:
        raise ConfigError(f"--dim {held.dim}: wanted a whole number from 1 to {MAX_DIM}")
    if not 1 <= top_k <= held.documents:
        raise ConfigError(f"--top-k {top_k}: wanted 1 to {held.documents}, the number of documents")


def commands(layout: Layout, asked: Asked) -> list[str]:
    """What to run, line by line."""
    index = "--index corpus.mvx"
    shards = f" --shards {layout.shards}" if layout.shards > 1 else ""
    held: Mapping[str, object] = {"--views": math.ceil(asked.held.views), "--dtype": asked.held.view_type.value}
    options = " ".join(f"{name} {value}" for name, value in held.items())
    lines = [f"mvindex ingest corpus.tsv {index} {options}{shards}"]
    if layout.kind is not Kind.EXACT:
        lists = "" if layout.is_usual_lists or not layout.lists else f" --lists {layout.lists}"
        lines.append(f"mvindex build {index} --kind {layout.kind.value}{lists}")
    if layout.kind not in (Kind.EXACT, Kind.FLAT):
        target = f"--target-recall {asked.target_recall:g} --top-k {asked.top_k}"
        lines.append(f"mvindex tune {index} {target} --queries questions.jsonl")
    return lines
