"""Show a plan as a table with notes, at most 80 columns wide, and as JSON (schemas/records/plan.schema.json)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from mvindex.measure.planning.layouts import Layout, Plan, commands
from mvindex.measure.planning.units import format_bytes, format_seconds

WIDTH = 80
HEADER = ("layout", "nlist", "shards", "RAM", "disk", "fits", "recall", "build", "query")


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return the whole plan as JSON values, in bytes and seconds."""
    request, collection = plan.request, plan.request.collection
    return {
        "documents": collection.documents,
        "views": collection.num_views,
        "dim": collection.dim,
        "dtype": collection.view_type.value,
        "text_bytes": collection.text_bytes,
        "machine": asdict(request.machine),
        "top_k": request.top_k,
        "target_recall": request.target_recall,
        "scan": request.scan,
        "store_bytes_per_document": plan.layouts[0].store.resident / plan.layouts[0].shard.documents,
        "layouts": [_layout_json(layout, plan) for layout in plan.layouts],
        "recommended": None if plan.recommended is None else plan.layouts.index(plan.recommended),
        "why": plan.why,
    }


def _layout_json(layout: Layout, plan: Plan) -> dict[str, Any]:
    return {
        "kind": layout.kind,
        "on_gpu": layout.on_gpu,
        "shards": layout.shards,
        "documents_per_shard": layout.shard.documents,
        "nlist": layout.nlist or None,
        "nprobe": layout.nprobe or None,
        "ram_bytes": {
            "engine": layout.engine.resident,
            "store": layout.store.resident,
            "building": layout.building,
        },
        "gpu_bytes": layout.gpu_bytes,
        "disk_bytes": {
            "views": layout.store.views,
            "rows": layout.store.rows,
            "catalog": layout.store.catalog,
            "engine": layout.engine.disk,
            "building": layout.building_disk,
        },
        "recall": asdict(layout.recall),
        "build_s": layout.build_s,
        "query_s": layout.query_s,
        "fits": not layout.lacks,
        "lacks": list(layout.lacks),
        "commands": commands(layout, plan.request),
    }


def summary(plan: Plan) -> str:
    """Return what is planned for, above the table."""
    collection, machine = plan.request.collection, plan.request.machine
    disk = "" if machine.disk_bytes is None else f", {format_bytes(machine.disk_bytes)} of disk"
    gpus = "" if not machine.gpus else f", {machine.gpus} GPU of {format_bytes(machine.gpu_bytes)}"
    return _wrap(
        f"{collection.documents:,} documents, {collection.num_views:,} views of {collection.dim} dimensions "
        f"({collection.view_type.value}); machines of {format_bytes(machine.ram_bytes)}{disk}{gpus}. "
        "Figures are per shard; each shard has a machine of its own."
    )


def plan_rows(plan: Plan) -> list[Sequence[str]]:
    """Return the cells of the table, one row per layout, under HEADER."""
    return [_cells(layout, plan) for layout in plan.layouts]


def _cells(layout: Layout, plan: Plan) -> Sequence[str]:
    return (
        ("* " if layout == plan.recommended else "  ") + layout.name,
        str(layout.nlist) if layout.nlist else "-",
        str(layout.shards),
        format_bytes(layout.gpu_bytes if layout.on_gpu else layout.resident),
        format_bytes(layout.store.disk + layout.engine.disk),
        "no" if layout.lacks else "yes",
        "?" if layout.recall.low is None else f"{layout.recall.low:.2f}",
        _time(layout.build_s),
        _time(layout.query_s),
    )


def _time(seconds: float | None) -> str:
    return "-" if not seconds else format_seconds(seconds)


def notes(plan: Plan) -> Iterator[str]:
    """Yield the lines below the table: the recommendation, its commands, and the limits of the figures."""
    if plan.recommended is None:
        yield _wrap("Nothing fits, in any number of shards. Give the machines more memory or disk.")
    else:
        yield from _recommendation(plan, plan.recommended)
    for layout in plan.layouts:
        if layout.lacks and (layout.shards == 1 or plan.recommended is None):
            yield _wrap(f"{layout.name} does not fit one machine: {'; '.join(layout.lacks)}", "  ")
    yield ""
    at = plan.layouts[0].recall.at
    yield _wrap(
        f"Recall of the first {at} documents on the harder of two corpora, measured at up to 8 million views; ? is "
        "unknown. Other sizes are extrapolated: mvindex tune measures (docs/how-to/scale.md)."
    )
    if plan.request.machine.gpus:
        yield _wrap(
            "With GPU, RAM is the GPU's. ivf-flat and ivf-sq8 are searched there with the extra gpu, hnsw and ivf-pq "
            "with the package faiss-gpu-cuvs in place of others of Faiss; without them on the CPU. mvindex info "
            "--devices shows which are installed. These bytes were not measured on a GPU."
        )
    cores = plan.request.machine.cores
    yield _wrap(
        "Times are of a reference machine (AMD EPYC, Zen 5), not of yours: a build on "
        f"{cores} of its cores, a query in one thread. Take them as right within a factor of three. Without encoding, "
        "and for views in the page cache. - is unknown, or nothing to build."
    )


def _recommendation(plan: Plan, chosen: Layout) -> Iterator[str]:
    shards = f" in {chosen.shards} shards" if chosen.shards > 1 else ""
    yield _wrap(f"* {chosen.name}{shards}: {plan.why}.", "  ")
    if chosen.nlist:
        yield f"  nlist {chosen.nlist:,}, nprobe about {chosen.nprobe:,} until tuned"
    yield f"  during the build: {format_bytes(chosen.building)} of memory, {format_bytes(chosen.building_disk)} of disk"
    yield ""
    yield from (f"  {line}" for line in commands(chosen, plan.request))
    yield ""
    yield "Other layouts: the same with their --kind and --shards (all in --json)."


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
