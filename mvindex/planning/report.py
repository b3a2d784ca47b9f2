"""A plan for people, as a table with notes, and as JSON (schemas/records/plan.schema.json)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from mvindex.engines.params import IVF_KINDS
from mvindex.planning.layouts import Layout, Plan, commands
from mvindex.planning.rates import Span
from mvindex.planning.recall import Recall
from mvindex.planning.units import shown_bytes, shown_seconds

HEADER = ("layout", "shards", "RAM", "disk", "build", "alone", "in a batch", "recall")


def plan_json(made: Plan) -> dict[str, Any]:
    """The whole plan as JSON values: bytes, and seconds with their spread."""
    asked, held = made.asked, made.asked.held
    return {
        "documents": held.documents,
        "views": held.num_views,
        "dim": held.dim,
        "dtype": held.view_type.value,
        "text_bytes": held.text_bytes,
        "machine": asdict(asked.machine),
        "top_k": asked.top_k,
        "target_recall": asked.target_recall,
        "scan": asked.scan,
        "is_timed": made.rates is not None,
        "store_bytes_per_document": made.layouts[0].store.resident / made.layouts[0].shard.documents,
        "layouts": [_layout_json(layout, made) for layout in made.layouts],
        "recommended": None if made.recommended is None else made.layouts.index(made.recommended),
        "why": made.why,
    }


def _layout_json(layout: Layout, made: Plan) -> dict[str, Any]:
    is_listed = layout.kind in IVF_KINDS
    return {
        "kind": layout.kind.value,
        "on_gpu": layout.on_gpu,
        "shards": layout.shards,
        "documents_per_shard": layout.shard.documents,
        "lists": layout.lists if is_listed else None,
        "probes": layout.probes if is_listed else None,
        "ram_bytes": {
            "engine": layout.engine.resident,
            "store": layout.store.resident,
            "building": layout.engine.building + layout.store.resident,
        },
        "disk_bytes": {
            "views": layout.store.views,
            "rows": layout.store.rows,
            "catalog": layout.store.catalog,
            "engine": layout.engine.disk,
            "building": layout.building_disk,
        },
        "recall": asdict(layout.recall),
        "seconds": _times_json(layout),
        "fits": not layout.lacks,
        "lacks": list(layout.lacks),
        "commands": commands(layout, made.asked),
    }


def _times_json(layout: Layout) -> dict[str, Any] | None:
    if layout.times is None:
        return None
    steps = {name: asdict(span) for name, span in layout.times.build.items()}
    found = {"alone": layout.times.alone, "batch": layout.times.batch, "build": layout.times.whole_build}
    return {name: asdict(span) for name, span in found.items()} | {"build_steps": steps}


def summary(made: Plan) -> str:
    """What was asked, in a line."""
    held, machine = made.asked.held, made.asked.machine
    size = f"{held.documents:,} documents, {held.num_views:,} views of {held.dim} dimensions ({held.view_type.value})"
    disk = "" if machine.disk_bytes is None else f", {shown_bytes(machine.disk_bytes)} of disk"
    gpus = "" if not machine.gpus else f", {machine.gpus} GPU of {shown_bytes(machine.gpu_bytes)}"
    return f"{size}; machines of {shown_bytes(machine.ram_bytes)}{disk}{gpus}; each figure is of one shard"


def plan_rows(made: Plan) -> list[Sequence[str]]:
    """The cells of the table, a layout a row, under HEADER."""
    return [_cells(layout, layout == made.recommended) for layout in made.layouts]


def _cells(layout: Layout, is_recommended: bool) -> Sequence[str]:
    mark = "-> " if is_recommended else "x " if layout.lacks else ""
    times = layout.times
    spans = (times.whole_build, times.alone, times.batch) if times else ()
    ram = layout.engine.resident if layout.on_gpu else layout.resident
    return (
        mark + layout.name,
        str(layout.shards),
        shown_bytes(ram),
        shown_bytes(layout.store.disk + layout.engine.disk),
        *(([_shown(span) for span in spans]) or ["-"] * 3),
        _shown_recall(layout.recall),
    )


def notes(made: Plan) -> Iterator[str]:
    """Lines to stand under the table: what does not fit, what is recommended, what to run, and what figures rest on."""
    for layout in made.layouts:
        if layout.lacks:
            shards = f" in {layout.shards} shards" if layout.shards > 1 else ""
            yield f"x {layout.name}{shards} does not fit: {'; '.join(layout.lacks)}"
    if made.recommended is None:
        yield "nothing fits, in any number of shards: give the machines more memory or disk"
    else:
        yield from _advice(made, made.recommended)
    yield from _grounds(made)


def _advice(made: Plan, chosen: Layout) -> Iterator[str]:
    shards = f" in {chosen.shards} shards, a machine each" if chosen.shards > 1 else ""
    yield ""
    yield f"-> {chosen.name}{shards}: {made.why}"
    if chosen.kind in IVF_KINDS:
        yield f"   {chosen.lists:,} lists, of which about {chosen.probes:,} a query; tune finds how many it takes"
    building = shown_bytes(chosen.engine.building + chosen.store.resident)
    yield f"   while it is built: {building} of memory, {shown_bytes(chosen.building_disk)} of disk"
    yield from (f"     {line}" for line in commands(chosen, made.asked))
    yield "   Other layouts: the same with their --kind and --shards (all in --json)."


def _grounds(made: Plan) -> Iterator[str]:
    held = made.asked.held
    store = made.layouts[0].store
    yield ""
    yield (
        f"store: {store.resident / held.documents:.1f} B of memory a document; on disk {shown_bytes(store.views)} of "
        f"views, {shown_bytes(store.catalog + store.rows)} of texts and rows (all shards together)"
    )
    at = made.layouts[0].recall.at
    yield (
        f"recall of {at} documents: from the harder to the kinder of two corpora, measured at up to 8 million views; "
        "other sizes are extrapolated (docs/scale.md)"
    )
    if made.rates is None:
        yield "times were not asked for"
        return
    rates = made.rates
    if rates.dim != held.dim:
        yield f"times: rates of {rates.dim} dimensions, carried over to {held.dim}: calibrate with --dim {held.dim}"
    yield (
        f"times: rates measured with {rates.threads} threads at {rates.dim} dimensions, exact scan by {rates.scan}; in "
        "brackets the middle half of the measurements. Encoding is not counted; shards run side by side"
    )


def _shown(span: Span) -> str:
    return shown_seconds(span.mid, (span.low, span.high))


def _shown_recall(recall: Recall) -> str:
    if recall.low == 0:
        return "unknown"
    return f"{recall.low:.2f}-{recall.high:.2f}" if recall.low < recall.high else f"{recall.low:.3f}"
