"""Plans worked by hand: which layouts there are, what fits, in how many shards, what is recommended, and how long."""

import json
from dataclasses import replace

import jsonschema
import pytest
from planning_examples import GIB, collection, fixed, made_rates, schema

from mvindex.engines.params import probes_of, usual_lists, usual_search
from mvindex.engines.protocol import Kind
from mvindex.errors import ConfigError
from mvindex.planning import Asked, Machine, check_asked, layouts, make_plan
from mvindex.planning.layouts import commands
from mvindex.planning.rates import NOTHING, Span, read_rates, write_rates
from mvindex.planning.recall import expected_recall, share_of, wanted_share
from mvindex.planning.report import HEADER, notes, plan_json, plan_rows
from mvindex.planning.sizes import engine_bytes
from mvindex.planning.times import Searched, documents_scored, layout_times

NATIVE = "native int8 (AVX-512 VNNI)"
WIKIPEDIA = collection(documents=21_015_324, views=8, dim=768)


def plan(held, ram_gib=64, disk_gib=None, gpus=0, rates=None, **asked):
    disk = None if disk_gib is None else int(disk_gib * GIB)
    machine = Machine(ram_bytes=int(ram_gib * GIB), disk_bytes=disk, gpus=gpus)
    return make_plan(Asked(held=held, machine=machine, scan=NATIVE, **asked), rates)


def of_kind(made, kind, on_gpu=False):
    return [layout for layout in made.layouts if (layout.kind, layout.on_gpu) == (kind, on_gpu)]


def test_wikipedia_fits_a_machine_of_64_gib_in_codes_of_four_bits():
    made = plan(WIKIPEDIA)
    (whole,) = of_kind(made, Kind.IVF_PQ)
    assert made.recommended is whole and whole.shards == 1 and not whole.lacks
    # 168,122,592 views of 192 + 8 B are 31.3 GiB; centroids and padded blocks make up the rest.
    assert 31.3 * GIB < whole.resident < 33 * GIB


def test_training_that_does_not_fit_takes_fewer_lists():
    # Three times 131,072 x 64 views of 3,072 B are 72 GiB; there are 0.9 x 64. Half of that is 36 GiB.
    (whole,) = of_kind(plan(WIKIPEDIA), Kind.IVF_PQ)
    assert usual_lists(WIKIPEDIA.num_views) == 131_072 and whole.lists == 65_536
    assert "--lists 65536" in commands(whole, plan(WIKIPEDIA).asked)[1]
    (roomy,) = of_kind(plan(WIKIPEDIA, ram_gib=128), Kind.IVF_PQ)
    assert roomy.lists == 131_072 and "--lists" not in commands(roomy, plan(WIKIPEDIA).asked)[1]


def test_lists_are_learnt_from_the_views_of_all_shards():
    # Views of 384 dimensions take 120.3 GiB, texts and rows 15.7, the engine twice 33: five disks of 40 GiB.
    held = collection(documents=21_015_324, dim=384)
    sharded = of_kind(plan(held, ram_gib=128, disk_gib=40), Kind.IVF_PQ)[1]
    assert sharded.shards == 5 and usual_lists(sharded.shard.num_views) == 65_536
    assert sharded.lists == usual_lists(held.num_views) == 131_072
    assert "--lists" not in commands(sharded, plan(held).asked)[1]


@pytest.mark.parametrize("kind", list(Kind))
def test_what_does_not_fit_is_marked_and_planned_in_the_fewest_shards_that_do(kind):
    planned = plan(WIKIPEDIA, ram_gib=24)
    found = of_kind(planned, kind)
    assert [bool(layout.lacks) for layout in found] == [True, False][-len(found) :]
    fitting = found[-1]
    assert fitting.shards * fitting.shard.documents >= WIKIPEDIA.documents
    if fitting.shards > 1:
        # One fewer would not do, with the lists of all views.
        assert layouts._layout(planned.asked, (kind, False), fitting.shards - 1, None).lacks


def test_flat_needs_as_many_shards_as_its_floats_take_of_three_quarters_of_the_memory():
    # 168,122,592 x 3,072 B = 481.0 GiB; of 48 GiB each, less what the store takes, that is 11 machines.
    whole, sharded = of_kind(plan(WIKIPEDIA), Kind.FLAT)
    assert whole.lacks and "481 GiB of 48.0 GiB" in whole.lacks[0]
    assert sharded.shards == 11 and "--shards 11" in commands(sharded, plan(WIKIPEDIA).asked)[0]


def test_the_exact_scan_fits_while_its_copies_take_a_quarter_of_the_memory():
    # A million views of 768 B are 0.72 GiB.
    held = collection(documents=125_000, dim=768)
    assert not of_kind(plan(held, ram_gib=3), Kind.EXACT)[0].lacks
    assert "copies" in of_kind(plan(held, ram_gib=2.8), Kind.EXACT)[0].lacks[0]


def test_a_full_disk_needs_shards_too():
    # Views 240.5 GiB, texts and rows 15.8, the engine twice while it is built: 320 GiB.
    found = of_kind(plan(WIKIPEDIA, disk_gib=300), Kind.IVF_PQ)
    assert "files while it is built: 320 GiB of 300 GiB" in found[0].lacks and found[1].shards == 2
    assert not of_kind(plan(WIKIPEDIA, disk_gib=330), Kind.IVF_PQ)[0].lacks


def test_where_nothing_fits_nothing_is_recommended():
    made = plan(WIKIPEDIA, disk_gib=0.0001)
    assert made.recommended is None and all(layout.lacks for layout in made.layouts)
    assert any("nothing fits" in line for line in notes(made))
    jsonschema.validate(plan_json(made), schema("plan"))


def test_a_gpu_holds_the_scan_in_half_of_its_memory():
    # 10 million views of 768 dimensions in float32 are 28.6 GiB; half of 80 GiB is enough, twice as many are too much.
    (fits,) = of_kind(plan(collection(documents=1_250_000, dim=768), gpus=1), Kind.EXACT, on_gpu=True)
    assert not fits.lacks and fits.engine.resident == 10_000_000 * 768 * 4
    assert of_kind(plan(collection(documents=2_500_000, dim=768), gpus=1), Kind.EXACT, on_gpu=True)[0].lacks
    assert not of_kind(plan(collection(documents=1_250_000, dim=768)), Kind.EXACT, on_gpu=True)


def test_few_views_are_scanned_and_a_target_of_one_always_is():
    made = plan(collection(documents=60_000, dim=384))  # 184 MB a scan
    assert made.recommended.kind is Kind.EXACT and "proof" in made.why
    made = plan(collection(documents=1_000_000, dim=384), target_recall=1.0)
    assert made.recommended.kind is Kind.EXACT and "certain" in made.why


def test_of_equally_many_machines_the_fastest_query_is_recommended():
    held = collection(documents=1_000_000, dim=384)
    slow = made_rates()
    scans = dict(slow.scans) | {"ivf-sq8 alone": fixed(1e-12)}
    assert plan(held, rates=slow).recommended.kind is not Kind.IVF_SQ8
    assert plan(held, rates=replace(slow, scans=scans)).recommended.kind is Kind.IVF_SQ8


def test_a_graph_over_more_views_than_were_ever_measured_is_not_recommended():
    scans = dict(made_rates().scans) | {"hnsw alone": fixed(1e-15)}
    rates = made_rates(scans=scans)
    assert plan(collection(documents=1_000_000, dim=384), rates=rates).recommended.kind is not Kind.HNSW
    assert plan(collection(documents=120_000, dim=384), rates=rates).recommended.kind is Kind.HNSW


def test_the_times_of_a_query_are_counts_times_rates():
    held = collection(documents=1000, views=2, dim=8)
    how = Searched(
        name="ivf-pq", kind=Kind.IVF_PQ, lists=100, all_views=2000, probes=25, fetch=15, top_k=10, cached=1.0
    )
    times = layout_times(made_rates(), held, engine_bytes(Kind.IVF_PQ, 2000, 8, 100), how)
    # 400 hits are 228 to 348 documents, of 16 elements each; 100 centroids of 32 B; 500 of 2,000 views of 8 elements.
    assert documents_scored(how, 1000) == pytest.approx((228, 348))
    assert times.alone.low == pytest.approx(1e-3 + 1e-9 * (3200 + 4000 + 228 * 16))
    assert times.alone.high == pytest.approx(1e-3 + 1e-9 * (3200 + 4000 + 348 * 16))
    # In a batch centroids are multiplied: 800 products.
    assert times.batch.mid == pytest.approx(1e-3 + 1e-9 * (800 + 4000 + 288 * 16))


def test_views_that_no_page_cache_holds_are_read_from_disk():
    held = collection(documents=1000, views=2, dim=8)
    how = Searched(name="hnsw", kind=Kind.HNSW, lists=0, all_views=2000, probes=0, fetch=4, top_k=10, cached=0.25)
    engine = engine_bytes(Kind.HNSW, 2000, 8, 0)
    cold, warm = (layout_times(made_rates(), held, engine, each).alone for each in (how, replace(how, cached=1.0)))
    # 40 hits are 22.8 to 34.8 documents; three in four of them are read in a millisecond each.
    assert cold.low - warm.low == pytest.approx(22.8 * 0.75e-3)
    assert cold.high - warm.high == pytest.approx(34.8 * 0.75e-3)


def test_the_times_of_a_build_are_counts_times_rates():
    held = collection(documents=100_000, views=2, dim=8)
    how = Searched(
        name="ivf-flat", kind=Kind.IVF_FLAT, lists=512, all_views=200_000, probes=1, fetch=4, top_k=10, cached=1.0
    )
    engine = engine_bytes(Kind.IVF_FLAT, 200_000, 8, 512)
    steps = layout_times(made_rates(), held, engine, how).build
    # A sample of 65,536 views in runs of 64; ten rounds of 65,536 x 512 x 8 products; each view 512 x 8 and 8 more.
    assert steps["reading a sample"].mid == pytest.approx(1024 * 1e-3)
    assert steps["training"].mid == pytest.approx(10 * 65_536 * 512 * 8 * 1e-9)
    assert steps["adding views"].mid == pytest.approx(200_000 * (512 * 8 + 8 + 16) * 1e-9)
    assert steps["writing"].mid == pytest.approx(3 * engine.disk * 1e-9)


def test_recall_is_read_off_between_the_measured_points():
    # A quarter of the lists: measured .991 and .999 of 10, .973 and .974 of 100 documents.
    found = expected_recall(Kind.IVF_PQ, 10**7, 1 / 4, 10)
    assert (found.low, found.high, found.at) == (0.991, 0.999, 10)
    assert expected_recall(Kind.IVF_PQ, 10**7, 1 / 4, 100).low == 0.973
    # Half way, on a scale of ratios, between a quarter and a half.
    assert expected_recall(Kind.IVF_PQ, 10**7, 2**0.5 / 4, 10).low == pytest.approx((0.991 + 0.999) / 2)
    assert expected_recall(Kind.IVF_PQ, 10**7, 1.0, 10).low == 0.999
    assert expected_recall(Kind.EXACT, 10**6, 1, 10).low == 1.0
    assert expected_recall(Kind.HNSW, 80_000, 1, 100).low == 0.986
    assert expected_recall(Kind.HNSW, 10**7, 1, 100).low == 0.0


@pytest.mark.parametrize("target", [0.82, 0.9, 0.95, 0.97, 0.985])
@pytest.mark.parametrize("top_k", [10, 100])
def test_the_wanted_share_finds_the_target_on_the_harder_corpus(target, top_k):
    share = wanted_share(Kind.IVF_PQ, target, top_k)
    assert expected_recall(Kind.IVF_PQ, 10**7, share, top_k).low >= target - 1e-9


def test_a_target_out_of_reach_takes_no_more_than_what_finds_nearly_as_much():
    # ivf-rabitq has .872 of the first 100 at most: .867 are found with less than a quarter.
    share = wanted_share(Kind.IVF_RABITQ, 0.97, 100)
    assert 0.2 < share < 0.25
    assert expected_recall(Kind.IVF_RABITQ, 10**7, share, 100).low == pytest.approx(0.867)


def test_of_few_lists_a_larger_share_is_looked_at():
    assert share_of(1 / 4, 4096) == share_of(1 / 4, 131_072) == 1 / 4
    # Half as many lists per square root of their number: 256 x 1/2 = 16 x 8, and 4,096 x 1/8 = 64 x 8.
    assert share_of(1 / 8, 256) == 1 / 2
    assert share_of(1 / 4, 64) == 1.0


def test_the_plan_looks_at_as_many_lists_as_the_target_takes():
    (whole,) = of_kind(plan(WIKIPEDIA, target_recall=0.973, top_k=100), Kind.IVF_PQ)
    assert (whole.lists, whole.probes) == (65_536, 16_384)


def test_effort_16_is_the_usual_search():
    for lists in (1, 64, 4096, 16_384, 131_072):
        assert probes_of(16, lists) == usual_search(Kind.IVF_PQ, lists)["probes"]
    assert probes_of(16, 4096) == 1024 and probes_of(16, 64) == 64


def test_a_span_is_worked_out_from_repeated_measurements():
    span = Span.of([3.0, 1.0, 2.0])
    assert span.mid == 2.0 and 1.0 <= span.low < 2.0 < span.high <= 3.0
    assert Span(1, 2, 3) + Span(1, 1, 1) == Span(2, 3, 4) and Span(1, 2, 3) * 2 == Span(2, 4, 6)
    assert Span(1, 2, 3).between(10, 20) == Span(10, 30, 60)
    assert Span(1, 2, 3).less(1.5) == Span(0, 0.5, 1.5) and Span(1, 2, 3).without(2) == Span(1, 2, 3)
    assert NOTHING + Span(1, 2, 3) == Span(1, 2, 3)


def test_rates_come_back_as_they_were_written(tmp_path):
    rates = made_rates(product=Span(1e-11, 2e-11, 3e-11))
    write_rates(tmp_path / "rates.json", rates)
    assert read_rates(tmp_path / "rates.json") == rates


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "no calibration"),
        ({"dim": 0}, "dim is 0"),
        ({"threads": "two"}, "threads is 'two'"),
        ({"product": None}, "product is None"),
        ({"product": {"low": 2, "mid": 1, "high": 3}}, "product is"),
        ({"product": {"low": -1, "mid": 1, "high": 3}}, "product is"),
        ({"scans": []}, "scans is"),
        ({"scans": {"exact alone": 1}}, "scans.exact alone"),
    ],
)
def test_a_calibration_that_is_none_is_refused_with_what_is_wrong(tmp_path, change, message):
    path = tmp_path / "rates.json"
    write_rates(path, made_rates())
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match=message):
        read_rates(path)


@pytest.mark.parametrize("content", ["", "[1]", "{", '"x"', "\0"])
def test_what_is_no_json_object_is_no_calibration(tmp_path, content):
    (tmp_path / "rates.json").write_text(content)
    with pytest.raises(ConfigError, match="rates.json"):
        read_rates(tmp_path / "rates.json")


def test_a_calibration_without_a_rate_that_is_needed_is_refused(tmp_path):
    path = tmp_path / "rates.json"
    write_rates(path, made_rates(scans={"exact alone": fixed(1e-9)}))
    with pytest.raises(ConfigError, match="scans lacks"):
        read_rates(path)


@pytest.mark.parametrize(
    ("held", "top_k"), [(collection(views=0.5), 10), (collection(documents=5), 6), (collection(dim=0), 1)]
)
def test_what_cannot_be_planned_is_refused(held, top_k):
    with pytest.raises(ConfigError, match="wanted"):
        check_asked(held, top_k)


@pytest.mark.parametrize("rates", [None, made_rates()])
@pytest.mark.parametrize("gpus", [0, 1])
def test_the_plan_as_json_is_that_of_the_schema_and_the_table_has_a_row_a_layout(rates, gpus):
    made = plan(WIKIPEDIA, disk_gib=400, rates=rates, gpus=gpus)
    found = plan_json(made)
    jsonschema.validate(found, schema("plan"))
    assert found["layouts"][found["recommended"]]["fits"] and found["is_timed"] == (rates is not None)
    rows = plan_rows(made)
    assert len(rows) == len(made.layouts) and {len(row) for row in rows} == {len(HEADER)}
    assert sum(row[0].startswith("-> ") for row in rows) == 1
    assert sum(row[0].startswith("x ") for row in rows) == sum(bool(layout.lacks) for layout in made.layouts)
