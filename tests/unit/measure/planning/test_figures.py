"""The sizes that `plan` gives are compared with those that were measured: docs/figures/full_count.jsonl."""

import json
from pathlib import Path

import pytest

from mvindex.measure.planning.layouts import Machine, PlanRequest, make_plan
from mvindex.measure.planning.sizes import Collection
from mvindex.store.views import ViewType

FILE = Path(__file__).parents[4] / "docs" / "figures" / "full_count.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
# Of a text with its title and metadata, as bench/full_count.py makes them: without terms, and with them.
TEXT_BYTES, TEXT_BYTES_WITH_TERMS = 110, 260
# Below, fixed costs of a file and of a process count for more than documents do.
LEAST, LEAST_IN_MEMORY = 12_500, 1_250_000


def measured(step, name, least):
    """The last value of a figure for each size that a step has ended at."""
    rows = [row for row in ROWS if row["step"] == step and row.get("is_last") and row["documents"] >= least]
    return {row["documents"]: row[name] for row in rows}


def planned(documents):
    text_bytes = TEXT_BYTES_WITH_TERMS if documents > LEAST_IN_MEMORY else TEXT_BYTES
    held = Collection(documents=documents, views=8, dim=96, view_type=ViewType.FP16, text_bytes=text_bytes)
    request = PlanRequest(collection=held, machine=Machine(ram_bytes=24 << 30), scan="numpy fp32")
    return next(each for each in make_plan(request).layouts if each.kind == "ivf-pq" and each.shards == 1)


def within(value, expected):
    return pytest.approx(expected, rel=0.25) == value


@pytest.mark.parametrize(("documents", "size"), measured("ingest", "disk_bytes", LEAST).items())
def test_the_planned_files_of_the_store_are_those_measured(documents, size):
    assert within(planned(documents).store.disk, size)


@pytest.mark.parametrize(("documents", "size"), measured("build", "engine_bytes", LEAST).items())
def test_the_planned_files_of_an_engine_are_those_measured(documents, size):
    assert within(planned(documents).engine.disk, size)


@pytest.mark.parametrize(("documents", "size"), measured("build", "peak_bytes", LEAST_IN_MEMORY).items())
def test_the_planned_memory_of_a_build_is_that_measured(documents, size):
    assert within(planned(documents).building, size)


@pytest.mark.parametrize(("documents", "nlist"), measured("build", "nlist", LEAST).items())
def test_the_planned_number_of_lists_is_that_built(documents, nlist):
    assert planned(documents).nlist == nlist


def test_every_size_up_to_the_full_count_is_compared():
    sizes = measured("build", "engine_bytes", LEAST)
    assert {12_500, 125_000, 1_250_000, 21_015_324} <= sizes.keys()
