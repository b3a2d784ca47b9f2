"""Plans worked by hand: which layouts there are, what fits, in how many shards, what is recommended, and how long."""

import io
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import replace

import jsonschema
import pytest

from mvindex.cli import terminal as display
from mvindex.engines.auto import default_nlist, default_search, nprobe_of
from mvindex.engines.protocol import EXACT
from mvindex.errors import ConfigError
from mvindex.measure.planning import Machine, PlanRequest, layouts, make_plan
from mvindex.measure.planning.layouts import KINDS, commands
from mvindex.measure.planning.report import HEADER, WIDTH, notes, plan_json, plan_rows, summary
from mvindex.measure.planning.sizes import Workload, build_seconds, expected_recall, nprobe_for, query_seconds
from tests.helpers.planning_examples import GIB, collection, schema

NATIVE = "native int8 (AVX-512 VNNI)"
WIKIPEDIA = collection(documents=21_015_324, views=8, dim=768)


def plan(held, ram_gib=64, disk_gib=None, gpus=0, **request):
    disk = None if disk_gib is None else int(disk_gib * GIB)
    machine = Machine(ram_bytes=int(ram_gib * GIB), disk_bytes=disk, gpus=gpus)
    return make_plan(PlanRequest(collection=held, machine=machine, scan=NATIVE, **request))


def of_kind(made, kind, on_gpu=False):
    return [layout for layout in made.layouts if (layout.kind, layout.on_gpu) == (kind, on_gpu)]


def test_wikipedia_fits_a_machine_of_64_gib_in_codes_of_four_bits():
    made = plan(WIKIPEDIA)
    (whole,) = of_kind(made, "ivf-pq")
    assert made.recommended is whole and whole.shards == 1 and not whole.lacks
    # 168,122,592 views of 192 + 8 B are 31.3 GiB; centroids and padded blocks make up the rest.
    assert 31.3 * GIB < whole.resident < 33 * GIB


def test_training_that_does_not_fit_takes_fewer_lists():
    # 131,072 x 64 views of 1,536 B are 12 GiB; there are 0.9 x 8. Half of that is 6 GiB.
    small = of_kind(plan(WIKIPEDIA, ram_gib=8), "ivf-pq")[1]
    assert default_nlist(WIKIPEDIA.num_views) == 131_072 and small.nlist == 65_536
    assert "--nlist 65536" in commands(small, plan(WIKIPEDIA).request)[1]
    (roomy,) = of_kind(plan(WIKIPEDIA), "ivf-pq")
    assert roomy.nlist == 131_072 and "--nlist" not in commands(roomy, plan(WIKIPEDIA).request)[1]


def test_lists_are_learnt_from_the_views_of_all_shards():
    # Views of 384 dimensions take 120.3 GiB, texts and rows 15.7, the engine twice 33: five disks of 40 GiB.
    held = collection(documents=21_015_324, dim=384)
    sharded = of_kind(plan(held, ram_gib=128, disk_gib=40), "ivf-pq")[1]
    assert sharded.shards == 5 and default_nlist(sharded.shard.num_views) == 65_536
    assert sharded.nlist == default_nlist(held.num_views) == 131_072
    assert "--nlist" not in commands(sharded, plan(held).request)[1]


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"graph"}))
def test_what_does_not_fit_is_marked_and_planned_in_the_fewest_shards_that_do(kind):
    planned = plan(WIKIPEDIA, ram_gib=24)
    found = of_kind(planned, kind)
    assert [bool(layout.lacks) for layout in found] == [True, False][-len(found) :]
    fitting = found[-1]
    assert fitting.shards * fitting.shard.documents >= WIKIPEDIA.documents
    if fitting.shards > 1:
        # One fewer would not do, with the lists of all views.
        # Private: one layout of the many that a plan compares.
        assert layouts._layout(planned.request, kind, False, fitting.shards - 1).lacks


@pytest.mark.parametrize(("documents", "kind"), [(500_000, "graph"), (500_001, "ivf-pq")])
def test_a_graph_is_planned_and_preferred_up_to_four_million_views(documents, kind):
    planned = plan(collection(documents=documents, dim=384), ram_gib=64)
    assert planned.recommended.kind == kind
    assert bool(of_kind(planned, "graph")) == (kind == "graph")


def test_flat_needs_as_many_shards_as_its_floats_take_of_three_quarters_of_the_memory():
    # 168,122,592 x 3,072 B = 481.0 GiB; of 48 GiB each, less what the store takes, that is 11 machines.
    whole, sharded = of_kind(plan(WIKIPEDIA), "flat")
    assert whole.lacks and "481 GiB of 48.0 GiB" in whole.lacks[0]
    assert sharded.shards == 11 and "--shards 11" in commands(sharded, plan(WIKIPEDIA).request)[0]


def test_the_exact_scan_fits_while_its_copies_take_a_quarter_of_the_memory():
    # A million views of 768 B are 0.72 GiB.
    held = collection(documents=125_000, dim=768)
    assert not of_kind(plan(held, ram_gib=3), EXACT)[0].lacks
    assert "copies" in of_kind(plan(held, ram_gib=2.8), EXACT)[0].lacks[0]


def test_a_full_disk_needs_shards_too():
    # Views 240.5 GiB, texts and rows 15.8, the engine twice while it is built: 320 GiB.
    found = of_kind(plan(WIKIPEDIA, disk_gib=300), "ivf-pq")
    assert "files during a build 320 GiB of 300 GiB" in found[0].lacks and found[1].shards == 2
    assert not of_kind(plan(WIKIPEDIA, disk_gib=330), "ivf-pq")[0].lacks


def test_where_nothing_fits_nothing_is_recommended():
    made = plan(WIKIPEDIA, disk_gib=0.0001)
    assert made.recommended is None and all(layout.lacks for layout in made.layouts)
    assert any("Nothing fits" in line for line in notes(made))
    jsonschema.validate(plan_json(made), schema("plan"))


def test_a_gpu_holds_the_scan_in_three_quarters_of_its_memory():
    # 40 million views of 768 dimensions in fp16 are 57.2 GiB of the 60 GiB there are; 44 million are too much.
    (fits,) = of_kind(plan(collection(documents=5_000_000, dim=768), gpus=1), EXACT, on_gpu=True)
    assert not fits.lacks and fits.engine.resident == 40_000_000 * 768 * 2 + 5_000_000 * 12
    assert of_kind(plan(collection(documents=5_500_000, dim=768), gpus=1), EXACT, on_gpu=True)[0].lacks
    assert not of_kind(plan(collection(documents=1_250_000, dim=768)), EXACT, on_gpu=True)


def test_a_gpu_holds_a_copy_of_lists_beside_the_one_in_memory_but_no_lists_in_groups():
    few, many = (collection(documents=documents, dim=768) for documents in (200_000, 40_000_000))
    (there,) = of_kind(plan(few, ram_gib=128, gpus=1), "ivf-flat", on_gpu=True)
    (here,) = of_kind(plan(few, ram_gib=128, gpus=1), "ivf-flat")
    assert (there.engine, there.resident, there.lacks) == (here.engine, here.resident, ())
    assert "lists in groups" in of_kind(plan(many, ram_gib=4096, gpus=1), "ivf-sq8", on_gpu=True)[0].lacks[-1]
    assert not of_kind(plan(few, gpus=1), "ivf-rabitq", on_gpu=True)


def test_a_gpu_with_cuvs_holds_codes_and_a_graph_of_its_own():
    held = collection(documents=200_000, dim=768)
    made = plan(held, ram_gib=128, gpus=1)
    (codes,) = of_kind(made, "ivf-pq", on_gpu=True)
    assert not codes.lacks and codes.gpu_bytes == codes.engine.resident
    # 1.6 million views of 768 x 4 B, each with 64 links that are chosen of 128, of 4 B.
    (graph,) = of_kind(made, "hnsw", on_gpu=True)
    assert not graph.lacks and graph.gpu_bytes == 1_600_000 * (768 + 64 + 128) * 4
    assert of_kind(made, "hnsw")[0].gpu_bytes == 0
    said = " ".join("\n".join(notes(made)).split())
    assert "hnsw and ivf-pq with the package faiss-gpu-cuvs" in said
    assert "faiss-gpu-cuvs" not in "\n".join(notes(plan(held)))


def test_what_cuvs_cannot_search_does_not_fit_a_gpu():
    odd = of_kind(plan(collection(documents=200_000, dim=390), gpus=1), "ivf-pq", on_gpu=True)
    assert [layout.lacks for layout in odd] == [("cuVS wants dimensions that 4 divides, not 390",)]
    few = of_kind(plan(collection(documents=2_000, dim=384), gpus=1), "hnsw", on_gpu=True)
    assert few[0].lacks == ("fewer than 16,384 views are searched on the CPU",)


def test_few_views_are_scanned_and_a_target_of_one_always_is():
    made = plan(collection(documents=60_000, dim=384))  # 184 MB a scan
    assert made.recommended.kind == EXACT and "certified" in made.why
    made = plan(collection(documents=1_000_000, dim=384), target_recall=1.0)
    assert made.recommended.kind == EXACT and "guarantees" in made.why


def test_where_equally_many_machines_are_needed_the_default_kind_is_recommended():
    held = collection(documents=1_000_000, dim=384)
    assert plan(held).recommended.kind == "ivf-pq"


def test_the_seconds_of_a_query_are_counts_times_rates():
    load = Workload(kind="ivf-sq8", num_views=2000, all_views=2000, dim=8, nlist=100, nprobe=25)
    # 100 centroids and a quarter of 2,000 views, of 8 elements each, beside half a millisecond.
    assert query_seconds(load) == pytest.approx(5e-4 + 2.1e-10 * (100 + 500) * 8)
    load = replace(load, kind="ivf-pq", k_factor=30)
    # 300 view hits are scored anew.
    assert query_seconds(load) == pytest.approx(7e-4 + 2.35e-11 * (100 + 500) * 8 + 300 * 8e-7)
    load = Workload(kind=EXACT, num_views=2000, all_views=2000, dim=8)
    assert query_seconds(load) == pytest.approx(5e-4 + 6e-11 * 2000 * 8)


def test_the_seconds_of_a_build_are_counts_times_rates_over_the_cores():
    load = Workload(kind="ivf-flat", num_views=200_000, all_views=200_000, dim=8, nlist=512, nprobe=1)
    # Ten rounds of a sample of 65,536 views and once each view, times 512 lists of 8 dimensions; each view is coded.
    products = (10 * 65_536 + 200_000) * 512 * 8
    seconds = 1.77e-11 * products + 2.5e-8 * 200_000 * 8
    assert build_seconds(load, 1) == pytest.approx(seconds)
    assert build_seconds(load, 4) == pytest.approx(seconds / 4)


# docs/figures: seconds of the processor, by kind, views, dimensions and lists.
@pytest.mark.parametrize(
    ("kind", "num_views", "dim", "nlist", "measured_s"),
    [
        ("ivf-pq", 800_000, 384, 2048, 56.9),
        ("graph", 800_000, 384, 0, 271),
    ],
)
def test_the_seconds_of_a_build_are_within_a_factor_of_three_of_those_measured(kind, num_views, dim, nlist, measured_s):
    load = Workload(kind=kind, num_views=num_views, all_views=num_views, dim=dim, nlist=nlist, nprobe=1)
    assert measured_s / 3 < build_seconds(load, 1) < measured_s * 3


# docs/figures: milliseconds of the processor, by kind, views, dimensions, lists, those searched, and documents.
@pytest.mark.parametrize(
    ("kind", "num_views", "dim", "nlist", "nprobe", "top_k", "measured_ms"),
    [
        (EXACT, 800_000, 384, 0, 0, 10, 19.0),
        (EXACT, 1_000_000, 96, 0, 0, 10, 5.7),
        ("graph", 800_000, 384, 0, 0, 10, 2.5),
        ("graph", 800_000, 384, 0, 0, 100, 8.3),
        ("hnsw", 1_600_000, 384, 0, 0, 10, 8.6),
    ],
)
def test_the_seconds_of_a_query_are_within_a_factor_of_three_of_those_measured(
    kind, num_views, dim, nlist, nprobe, top_k, measured_ms
):
    load = Workload(
        kind=kind, num_views=num_views, all_views=num_views, dim=dim, nlist=nlist, nprobe=nprobe, top_k=top_k
    )
    assert measured_ms / 3 < 1e3 * query_seconds(load) < measured_ms * 3


def test_recall_is_that_of_the_least_measured_share_that_reaches_the_target():
    recall, share = expected_recall("ivf-pq", 10**7, 0.97, 10)
    assert (recall.low, recall.high, recall.at, share) == (0.970, 0.993, 10, 1 / 8)
    recall, share = expected_recall("ivf-pq", 10**7, 0.97, 100)
    assert (recall.low, recall.at, share) == (0.973, 100, 1 / 4)
    # Out of reach: the most that was measured.
    assert expected_recall("ivf-rabitq", 10**7, 0.97, 100)[0].low == 0.872
    assert expected_recall(EXACT, 10**6, 0.97, 10)[0].low == 1.0
    assert expected_recall("hnsw", 80_000, 0.97, 100)[0].low == 0.986
    assert expected_recall("hnsw", 10**7, 0.97, 100)[0].low is None


def test_of_few_lists_a_larger_share_is_searched():
    assert nprobe_for(1 / 4, 4096) == 1024 and nprobe_for(1 / 4, 131_072) == 32_768
    # Half as many lists per square root of their number: 256 x 1/2 = 16 x 8, and 4,096 x 1/8 = 64 x 8.
    assert nprobe_for(1 / 8, 256) == 128
    assert nprobe_for(1 / 4, 64) == 64


def test_effort_16_is_the_default_search():
    for lists in (1, 64, 4096, 16_384, 131_072):
        assert nprobe_of(16, lists) == default_search("ivf-pq", lists, 384)["nprobe"]
    assert nprobe_of(16, 4096) == 1024 and nprobe_of(16, 64) == 64


@pytest.mark.parametrize(
    ("held", "request_options"),
    [
        (collection(views=0.5), {}),
        (collection(documents=5), {"top_k": 6}),
        (collection(dim=0), {}),
        (collection(), {"target_recall": 1.2}),
    ],
)
def test_a_request_that_cannot_be_planned_is_refused(held, request_options):
    with pytest.raises(ConfigError, match="expected"):
        plan(held, **request_options)


@pytest.mark.parametrize("held", [WIKIPEDIA, collection(documents=100_000, dim=384)])
@pytest.mark.parametrize("gpus", [0, 1])
def test_the_plan_as_json_is_that_of_the_schema_and_the_table_has_a_row_a_layout(held, gpus):
    made = plan(held, disk_gib=400, gpus=gpus)
    found = plan_json(made)
    jsonschema.validate(found, schema("plan"))
    assert found["layouts"][found["recommended"]]["fits"]
    assert all((layout["query_s"] is None) == layout["on_gpu"] for layout in found["layouts"])
    rows = plan_rows(made)
    assert len(rows) == len(made.layouts) and {len(row) for row in rows} == {len(HEADER)}
    assert sum(row[0].startswith("* ") for row in rows) == 1
    assert sum(row[5] == "no" for row in rows) == sum(bool(layout.lacks) for layout in made.layouts)


@pytest.mark.parametrize("documents", [10, 125_000, 2_000_000, 21_000_000, 10**10])
@pytest.mark.parametrize(("dim", "ram_gib"), [(1, 0.5), (768, 64), (4096, 900)])
def test_the_table_and_notes_fit_80_columns_with_whole_names(documents, dim, ram_gib):
    made = plan(collection(documents=documents, dim=dim), ram_gib=ram_gib, disk_gib=2000, gpus=1)
    with redirect_stdout(io.StringIO()) as printed:
        display.print_grid("", HEADER, plan_rows(made))
    table = printed.getvalue().splitlines()
    text = [*summary(made).splitlines(), *(line for note in notes(made) for line in note.splitlines())]
    prose = [line for line in text if not line.startswith("  mvindex ")]
    assert max(map(len, [*table, *prose])) <= WIDTH
    assert {line[2:12].rstrip() for line in table[2:]} >= {*KINDS} - {"graph"}


def test_a_plan_takes_less_than_a_second_and_imports_no_heavy_package():
    code = (
        "import sys, time\n"
        "from typer.testing import CliRunner\n"
        "from mvindex.cli import app\n"
        "started = time.process_time()\n"
        "words = 'plan --documents 21M --views 8 --dim 768 --ram 64G --json'.split()\n"
        "result = CliRunner().invoke(app, words)\n"
        "assert result.exit_code == 0, result.output\n"
        "assert time.process_time() - started < 1\n"
        "heavy = {'torch', 'faiss', 'numba', 'transformers', 'pyarrow', 'grpc', 'nltk', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
