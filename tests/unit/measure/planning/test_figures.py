"""The sizes and times that `plan` gives are within 25 % of those measured: docs/figures."""

import json
from pathlib import Path

import pytest

from mvindex.measure.planning.layouts import Machine, PlanRequest, make_plan
from mvindex.measure.planning.sizes import Collection, Workload, query_seconds
from mvindex.store.views import ViewType

FIGURES = Path(__file__).parents[4] / "docs" / "figures"
# Of a text with its title and metadata, as bench/full_count.py makes them: 12 words, without terms and with them, and
# 100 words with terms.
TEXT_BYTES, TEXT_BYTES_WITH_TERMS, TEXT_BYTES_OF_100_WORDS = 110, 260, 800
# Below, fixed costs of a file and of a process count for more than documents do.
LEAST, LEAST_IN_MEMORY = 12_500, 1_250_000


def measured(step, name, least, file="full_count.jsonl"):
    """The last value of a figure for each size that a step has ended at."""
    rows = [json.loads(line) for line in (FIGURES / file).read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["step"] == step and row.get("is_last") and row["documents"] >= least]
    return {row["documents"]: row[name] for row in rows}


def planned(documents, cores=2, text_bytes=None):
    text_bytes = text_bytes or (TEXT_BYTES_WITH_TERMS if documents > LEAST_IN_MEMORY else TEXT_BYTES)
    held = Collection(documents=documents, views=8, dim=96, view_type=ViewType.FP16, text_bytes=text_bytes)
    request = PlanRequest(collection=held, machine=Machine(ram_bytes=24 << 30, cores=cores), scan="numpy fp32")
    return next(each for each in make_plan(request).layouts if each.kind == "ivf-pq" and each.shards == 1)


def within(value, expected):
    return pytest.approx(expected, rel=0.25) == value


@pytest.mark.parametrize(("documents", "size"), measured("ingest", "disk_bytes", LEAST).items())
def test_the_planned_files_of_the_store_are_those_measured(documents, size):
    assert within(planned(documents).store.disk, size)


@pytest.mark.parametrize(("documents", "size"), measured("ingest", "disk_bytes", LEAST, "ladder.jsonl").items())
def test_the_planned_files_of_longer_texts_are_those_measured(documents, size):
    assert within(planned(documents, text_bytes=TEXT_BYTES_OF_100_WORDS).store.disk, size)


@pytest.mark.parametrize(("documents", "size"), measured("build", "engine_bytes", LEAST).items())
def test_the_planned_files_of_an_engine_are_those_measured(documents, size):
    assert within(planned(documents).engine.disk, size)


@pytest.mark.parametrize(("documents", "size"), measured("build", "peak_bytes", LEAST_IN_MEMORY).items())
def test_the_planned_memory_of_a_build_is_that_measured(documents, size):
    assert within(planned(documents).building, size)


@pytest.mark.parametrize(("documents", "nlist"), measured("build", "nlist", LEAST).items())
def test_the_planned_number_of_lists_is_that_built(documents, nlist):
    assert planned(documents).nlist == nlist


@pytest.mark.parametrize(("documents", "seconds"), measured("build", "cpu_s", LEAST).items())
def test_the_planned_seconds_of_a_build_are_those_measured(documents, seconds):
    # For one core: what was measured is processor time.
    assert within(planned(documents, cores=1).build_s, seconds)


# Milliseconds of the processor of a single query for the first ten, by views, lists, those searched, and k_factor; with
# compiled loops. The first is of docs/figures/peers_by_size.jsonl, those of ten million views of docs/how-to/scale.md
# (beside other work, which took up to a third more), the last of full_count.jsonl.
@pytest.mark.parametrize(
    ("num_views", "nlist", "nprobe", "k_factor", "milliseconds"),
    [
        (1_000_000, 2048, 724, 60, 1.8),
        (10_000_000, 32_768, 2048, 60, 3.4),
        (10_000_000, 32_768, 2048, 120, 4.0),
        (10_000_000, 32_768, 4096, 240, 6.6),
        (10_000_000, 32_768, 16_384, 240, 17.6),
        (168_122_592, 131_072, 4096, 240, 15.0),
    ],
)
def test_the_planned_time_of_a_query_is_that_measured(num_views, nlist, nprobe, k_factor, milliseconds):
    load = Workload(
        kind="ivf-pq", num_views=num_views, all_views=num_views, dim=96, nlist=nlist, nprobe=nprobe, k_factor=k_factor
    )
    assert within(1000 * query_seconds(load), milliseconds)


def test_every_size_up_to_the_full_count_is_compared():
    for file in ("full_count.jsonl", "ladder.jsonl"):
        sizes = measured("build", "engine_bytes", LEAST, file)
        assert {12_500, 125_000, 1_250_000, 21_015_324} <= sizes.keys()
