"""The torch scan on a device: how often it waits for it, how it lives with little memory, and what it keeps there."""

import gc
import threading
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import mvindex
from mvindex.engines import device_views, scan_torch
from mvindex.engines import recorded as recorded_calls
from mvindex.engines.device_views import DeviceConfig
from mvindex.engines.scan_torch import TorchScan
from mvindex.errors import EngineUnavailable
from mvindex.index import embedded_store_of, search_engine_of
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.testing import true_scores
from tests.helpers.scan_cases import Wanted, assert_holds_and_ranks, assert_holds_the_best, build
from tests.helpers.scan_vectors import Case, a_crowd, duplicates, make_queries, near_ties, random_rows

pytestmark = pytest.mark.usefixtures("one_torch_thread")

# Those whose result has a shape or a value that the host must know, so that it waits for the device.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique_dim", "_unique2", "item"}


class Waits(TorchDispatchMode):
    """Counts the operations that wait for a device, as all of them would on a GPU."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        name = call.overloadpacket.__name__
        has_mask = name in ("index", "index_put_") and any(
            each is not None and each.dtype == torch.bool for each in args[1]
        )
        has_no_size = name == "repeat_interleave" and (kwargs or {}).get("output_size") is None
        if name in WAITING or has_mask or has_no_size:
            self.found[name] += 1
        return call(*args, **(kwargs or {}))


@pytest.fixture
def copies(monkeypatch):
    """The shapes of all tensors that were copied to the host."""
    found = []
    to_host = device_views.to_host
    for module in (scan_torch, recorded_calls):
        monkeypatch.setattr(module, "to_host", lambda tensor: found.append(tensor.shape) or to_host(tensor))
    return found


@pytest.mark.parametrize("scoring", [Scoring(), Scoring(Aggregate.DRPQ, 0.3)])
@pytest.mark.parametrize(("kind", "most"), [(random_rows, 1), (duplicates, 3)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_batch_waits_once_and_where_masses_tie_three_times(kind, most, scoring, dtype, copies, tmp_path):
    """However many chunks there are; a hundred equal documents tie for ten places."""
    rng = np.random.default_rng(1)
    starts = np.cumsum([0, *rng.integers(1, 9, 900)])
    stored = kind(rng, starts, 16).astype(dtype)
    queries = rng.standard_normal((20, 16)).astype(np.float32)
    allowed = rng.random(900) < 0.9
    with build(Case(stored, starts, queries, 1), tmp_path / "x.mvx") as index:
        snapshot = embedded_store_of(index).snapshot
        for chunk_bytes in (1 << 20, 1 << 11):
            scan = TorchScan(DeviceConfig(as_gpu=True, chunk_bytes=chunk_bytes))
            for _ in range(2):
                copies.clear()
                with Waits() as waits:
                    scan.candidates(snapshot, queries, 10, allowed, scoring)
                assert (len(copies), dict(waits.found)) == (most, {})
        # Private: which views a scan keeps in memory, no answer shows.
        assert len(scan._views.spans(snapshot)) > 30


def test_the_counter_sees_what_waits():
    values = torch.arange(5.0)
    with Waits() as waits:
        values[values > 2], values.nonzero(), values[0].item(), values.repeat_interleave(torch.ones(5).long())
    assert waits.found == {"index": 1, "nonzero": 1, "_local_scalar_dense": 1, "repeat_interleave": 1}


class Limited:
    """The products of a device that has memory for so many bytes of them; all else is real."""

    def __init__(self, most_bytes):
        self.multiplied, self.most_bytes, self.refused = scan_torch.multiplied, most_bytes, 0

    def __call__(self, planes, views, out):
        if out.numel() * 4 > self.most_bytes:
            self.refused += 1
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return self.multiplied(planes, views, out)


@pytest.mark.parametrize("as_gpu", [False, True])
@pytest.mark.parametrize("kind", [random_rows, a_crowd])
def test_a_scan_without_memory_goes_on_in_smaller_steps(kind, as_gpu, monkeypatch, tmp_path):
    rng = np.random.default_rng(2)
    starts = np.cumsum([0, *rng.integers(1, 9, 20_000)])
    stored = kind(rng, starts, 8).astype(np.float16)
    limited = Limited(1 << 17)
    monkeypatch.setattr(scan_torch, "multiplied", limited)
    case = Case(stored, starts, make_queries(rng, stored, 5), 1 << 22)
    scan = TorchScan(DeviceConfig(as_gpu=as_gpu))
    assert_holds_and_ranks(scan, case, tmp_path / "x.mvx", top_ks=(10,), temperatures=(None,))
    assert 0 < limited.refused < 12


def test_a_scan_takes_larger_steps_again_when_there_is_memory(monkeypatch, tmp_path):
    rng = np.random.default_rng(2)
    stored, queries = (rng.standard_normal((count, 8)).astype(np.float16) for count in (20_000, 30))
    short, plenty = Limited(1 << 21), Limited(1 << 40)
    with build(Case(stored, np.arange(20_001), queries, 1), tmp_path / "x.mvx") as index:
        snapshot = embedded_store_of(index).snapshot
        scan = TorchScan(DeviceConfig(as_gpu=True))
        request = (snapshot, queries.astype(np.float32), 10, snapshot.alive, Scoring())
        shapes = []
        for device, rounds in ((plenty, 1), (short, 1), (plenty, 200)):
            monkeypatch.setattr(scan_torch, "multiplied", device)
            for _ in range(rounds):
                scan.candidates(*request)
            # Private: how many queries are multiplied at once, no answer shows.
            shapes.append(scan._product_bytes)
        assert short.refused and shapes[1] < shapes[2] == shapes[0]


def test_a_search_for_a_thousand_waits_once(copies, tmp_path):
    rng = np.random.default_rng(3)
    stored, queries = (rng.standard_normal((count, 8)).astype(np.float32) for count in (5000, 1024))
    with build(Case(stored, np.arange(5001), queries, 1), tmp_path / "x.mvx") as index:
        here = [[hit.id for hit in result.hits] for result in index.search(queries, exact=True)]
        search_engine_of(index).use_scan(lambda: TorchScan(DeviceConfig(as_gpu=True)))
        there = [[hit.id for hit in result.hits] for result in index.search(queries, exact=True)]
        assert there == here and len(copies) == 1


def test_a_device_without_any_memory_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(scan_torch, "multiplied", Limited(0))
    rows, queries = np.ones((9, 4), dtype=np.float16), np.ones((1, 4), dtype=np.float32)
    with build(Case(rows, np.arange(10), queries, 1), tmp_path / "x.mvx") as index:
        with pytest.raises(EngineUnavailable, match="not enough memory left to scan"):
            snapshot = embedded_store_of(index).snapshot
            TorchScan().candidates(snapshot, queries, 1, snapshot.alive, Scoring())


def test_what_is_on_the_device_stays_there_and_few_chunks_grow(tmp_path):
    """A hundred small additions: what was added is joined, and few bytes are copied again."""
    rng = np.random.default_rng(3)
    config = DeviceConfig(chunk_bytes=1 << 15)  # 1,024 views
    scan, number, made, seen = TorchScan(config), 0, 0, set()
    with mvindex.create(tmp_path / "x.mvx", dim=8, lexical="none") as index:
        for count in rng.choice([1, 2, 40], 100):
            documents = [mvindex.Document(str(number + n), "t") for n in range(count)]
            index.add_views(documents, rng.standard_normal((count, 2, 8)))
            number += int(count)
            snapshot = embedded_store_of(index).snapshot
            scan.candidates(snapshot, np.ones((1, 8), dtype=np.float32), 1, snapshot.alive, Scoring())
            kept = set(scan._views._kept)
            made += sum(end - begin for begin, end in kept - seen)
            seen |= kept
            spans = scan._views.spans(snapshot)
            assert sorted(kept) == spans
            assert len(spans) <= 2 * number / 512 + 6
        assert made < 6 * number
        assert scan.copy_bytes() == number * 2 * 8 * 4 + number * (8 + 4)


def test_an_older_snapshot_is_scanned_beside_a_newer_one(tmp_path):
    rng = np.random.default_rng(4)
    starts, queries = np.arange(0, 303, 3), rng.standard_normal((3, 8)).astype(np.float32)
    stored = near_ties(rng, starts, 8).astype(np.float16)
    scan = TorchScan()
    with build(Case(stored, starts, queries, 1), tmp_path / "x.mvx") as index:
        old = embedded_store_of(index).snapshot
        more = [mvindex.Document(f"more {n}", "t") for n in range(50)]
        index.add_views(more, np.tile(stored[:3].astype(np.float32) * 2, (50, 1, 1)))
        index.delete(ids=["d7"])
        new = embedded_store_of(index).snapshot
        truth = true_scores(stored, starts, queries)
        for snapshot in (new, old, new, old):
            wanted = Wanted(queries, 20, snapshot.alive, Scoring())
            found = scan.candidates(snapshot, *wanted)
            if snapshot is old:
                assert_holds_the_best(found, truth, wanted)
            else:
                assert all(7 not in part.rows and part.rows.max() < 150 for part in found.each())
        index.admin.compact()
        for snapshot in (embedded_store_of(index).snapshot, old):
            assert len(scan.candidates(snapshot, queries[:1], 5, snapshot.alive, Scoring()).rows) >= 5


def test_single_queries_are_recorded_and_hold_the_best(copies, monkeypatch, tmp_path):
    """A CPU computes again what a GPU replays: the second query of a kind is recorded, those after it only replayed."""
    recorded, replayed = [], []

    def recording(compute, device):
        recorded.append(device)
        return lambda: replayed.append(device) or compute()

    monkeypatch.setattr(recorded_calls, "recording", recording)
    rng = np.random.default_rng(6)
    starts = np.cumsum([0, *rng.integers(1, 9, 400)])
    stored, queries = random_rows(rng, starts, 16).astype(np.float16), rng.standard_normal((6, 16)).astype(np.float32)
    scan = TorchScan(DeviceConfig(as_gpu=True, chunk_bytes=1 << 12))

    def asked(snapshot, scoring, top_k, allowed=None):
        allowed = snapshot.alive if allowed is None else allowed
        truth = true_scores(
            stored, starts, queries, scoring.temperature if scoring.aggregate is Aggregate.DRPQ else None
        )
        for query in range(len(queries)):
            wanted = Wanted(queries[query : query + 1], top_k, allowed, scoring)
            copies.clear()
            assert_holds_the_best(scan.candidates(snapshot, *wanted), truth[query : query + 1], wanted)
            assert len(copies) == 1
        return len(recorded), len(replayed)

    with build(Case(stored, starts, queries, 1), tmp_path / "x.mvx") as index:
        snapshot = embedded_store_of(index).snapshot
        # The first two are computed as any batch is: the views get to the device, and a kind is seen once.
        assert asked(snapshot, Scoring(), 10) == (1, 4)
        assert asked(snapshot, Scoring(Aggregate.DRPQ, 0.3), 10) == (2, 9)
        assert asked(snapshot, Scoring(Aggregate.DRPQ, 3.0), 10) == (2, 15)
        # A mask that may change is not recorded.
        assert asked(snapshot, Scoring(), 10, np.array(snapshot.alive)) == (2, 15)
        index.delete(ids=["d3", "d5"])
        assert asked(embedded_store_of(index).snapshot, Scoring(), 10) == (3, 20)
        assert asked(embedded_store_of(index).snapshot, Scoring(), 10) == (3, 26)
        index.add_views([mvindex.Document("more", "t")], [-stored[:2].astype(np.float32) * 1e-3])
        scan.candidates(
            embedded_store_of(index).snapshot, queries[:1], 10, embedded_store_of(index).snapshot.alive, Scoring()
        )
        # Private: the chunks of the snapshots before are not held by what was recorded of them.
        assert not any(scan._recordings._made.values())


def test_the_memory_that_a_recording_writes_to_lives_as_long_as_it(monkeypatch, tmp_path):
    """A graph holds none of it: another tensor would be written over."""
    own, written, record, copy = [], [], scan_torch._Scan.recorded, scan_torch.copy

    def recorded(self, *arguments):
        made = record(self, *arguments)
        written.append(weakref.ref(own.pop()._output))
        return made

    def recording(compute, device):
        """As on a GPU: what repeats a computation holds nothing of what did it."""
        result = compute()
        return lambda: result

    monkeypatch.setattr(recorded_calls, "recording", recording)
    # Private: which memory products are written to shows in no answer.
    monkeypatch.setattr(scan_torch, "copy", lambda scan: own.append(copy(scan)) or own[-1])
    monkeypatch.setattr(scan_torch._Scan, "recorded", recorded)
    scan, starts = TorchScan(DeviceConfig(as_gpu=True)), np.arange(0, 401, 4)
    rng = np.random.default_rng(6)
    stored, queries = random_rows(rng, starts, 16), rng.standard_normal((4, 16)).astype(np.float32)
    with build(Case(stored, starts, queries, 1), tmp_path / "x.mvx") as index:
        snapshot = embedded_store_of(index).snapshot
        for query in range(4):
            scan.candidates(snapshot, queries[query : query + 1], 10, snapshot.alive, Scoring())
        gc.collect()
        assert len(written) == 1 and written[0]() is not None
        scan.give_back()
        gc.collect()
        assert written[0]() is None


def test_a_scan_that_records_goes_on_with_memory_of_its_own(monkeypatch, tmp_path):
    """Another thread may replay the recording meanwhile, which writes its products."""
    base, starts = np.random.default_rng(0).standard_normal(16), np.arange(401)
    # All tie: the scan that records goes on to find every document.
    stored, queries = np.repeat(base[None], 400, axis=0), np.stack([base, -base]).astype(np.float32)
    products, reaching = scan_torch._Scan._products, scan_torch._Scan.all_reaching
    scan, here, waiting = TorchScan(DeviceConfig(as_gpu=True)), threading.local(), []

    def all_reaching(self, *arguments):
        here.goes_on = True
        try:
            return reaching(self, *arguments)
        finally:
            here.goes_on = False

    def then_another(self, views, tile):
        found = products(self, views, tile)
        if waiting and getattr(here, "goes_on", False):
            waiting.pop()
            pool.submit(scan.candidates, snapshot, queries[1:], 10, snapshot.alive, Scoring()).result()
        return found

    # Private: where the two threads meet.
    monkeypatch.setattr(scan_torch._Scan, "all_reaching", all_reaching)
    monkeypatch.setattr(scan_torch._Scan, "_products", then_another)
    case = Case(stored, starts, queries, 1)
    with build(case, tmp_path / "x.mvx") as index, ThreadPoolExecutor(1) as pool:
        snapshot = embedded_store_of(index).snapshot
        # The first brings the views to the device; a kind is recorded when it is asked for the second time then.
        for _ in range(2):
            alone = scan.candidates(snapshot, queries[:1], 10, snapshot.alive, Scoring())
        waiting.append("another thread")
        found = scan.candidates(snapshot, queries[:1], 10, snapshot.alive, Scoring())
    assert len(alone.rows) == len(found.rows) == 400 and not waiting


def test_a_program_in_inference_mode_leaves_recordings_to_others(tmp_path):
    rng, starts = np.random.default_rng(0), np.arange(0, 401, 4)
    stored, queries = random_rows(rng, starts, 16), rng.standard_normal((4, 16)).astype(np.float32)
    scan = TorchScan(DeviceConfig(as_gpu=True))
    with build(Case(stored, starts, queries, 1), tmp_path / "x.mvx") as index:
        snapshot = embedded_store_of(index).snapshot
        with torch.inference_mode():
            for query in range(3):
                scan.candidates(snapshot, queries[query : query + 1], 10, snapshot.alive, Scoring())
        assert len(scan.candidates(snapshot, queries[3:], 10, snapshot.alive, Scoring()).rows) >= 10


def test_one_thread_at_a_time_records():
    begun, goes_on, made = threading.Event(), threading.Event(), []

    def make():
        begun.set()
        assert goes_on.wait(60)
        made.append(object())
        return made[-1]

    recordings, others = recorded_calls.Recordings(), recorded_calls.Recordings()
    assert recordings.find("kind", make) is None and others.find("kind", make) is None
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(recordings.find, "kind", make)
        assert begun.wait(60)
        assert recordings.find("kind", make) is None and others.find("kind", make) is None
        goes_on.set()
        assert first.result() is made[0]
    assert recordings.find("kind", make) is made[0] and len(made) == 1


@pytest.mark.needs("cuda")
def test_a_gpu_replays_a_single_query_as_it_was_recorded(tmp_path):
    rng = np.random.default_rng(7)
    starts = np.cumsum([0, *rng.integers(1, 9, 4000)])
    stored, queries = random_rows(rng, starts, 64).astype(np.float16), rng.standard_normal((9, 64)).astype(np.float32)
    case = Case(stored, starts, queries, 1)
    scan = TorchScan(DeviceConfig(device="cuda", chunk_bytes=1 << 18))
    with build(case, tmp_path / "x.mvx") as index:
        index.delete(ids=["d7"])
        snapshot = embedded_store_of(index).snapshot
        for temperature in (None, 0.3, None):
            # What no tensor holds goes back to the GPU: a graph must not use it any more.
            torch.cuda.empty_cache()
            scoring = Scoring() if temperature is None else Scoring(Aggregate.DRPQ, temperature)
            truth = true_scores(stored, starts, queries, temperature)
            for query in range(len(queries)):
                wanted = Wanted(queries[query : query + 1], 10, snapshot.alive, scoring)
                assert_holds_the_best(scan.candidates(snapshot, *wanted), truth[query : query + 1], wanted)
        # Private: that a graph was made shows in no answer.
        graphs = [recorded._replay.__name__ for recorded in scan._recordings._made.values()]
        assert graphs == ["replay", "replay"]


@pytest.mark.needs("cuda")
def test_a_gpu_is_waited_for_once_a_batch(tmp_path):
    rng = np.random.default_rng(5)
    starts = np.arange(0, 8 * 4000 + 1, 8)
    stored, queries = random_rows(rng, starts, 64).astype(np.float16), rng.standard_normal((64, 64)).astype(np.float32)
    scan = TorchScan(DeviceConfig(device="cuda", chunk_bytes=1 << 18))
    with build(Case(stored, starts, queries, 1), tmp_path / "x.mvx") as index:
        snapshot = embedded_store_of(index).snapshot
        scan.candidates(snapshot, queries, 10, snapshot.alive, Scoring())
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with pytest.warns(UserWarning, match="synchroniz") as warned:
                scan.candidates(snapshot, queries, 10, snapshot.alive, Scoring())
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert 1 <= len(warned) <= 3
