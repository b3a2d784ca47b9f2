"""Loops that are loaded in a thread: who waits for what, what fails, and searches of a process that compiles."""

import json
import os
import subprocess
import sys
from threading import Event

import numpy as np
import pytest

import mvindex
from mvindex import kernels
from mvindex.errors import DamagedIndex
from mvindex.kernels import loading
from mvindex.kernels.loading import Loading
from tests.helpers.index_examples import documents


@pytest.fixture(autouse=True)
def beginning(monkeypatch):
    """A process that measures nothing and has announced nothing."""
    monkeypatch.setattr(kernels, "_is_expecting", False)
    monkeypatch.setattr(loading, "_has_announced", False)


class Compiling:
    """A load that goes through the compiler, until it is released."""

    def __init__(self):
        self.released, self.calls = Event(), 0

    def __call__(self):
        self.calls += 1
        loading.count_compiling(1)
        self.released.wait(10)
        loading.count_compiling(-1)


def test_a_search_waits_for_a_load_and_loads_once():
    calls, loaded = [], Loading()
    assert [loaded.is_done(lambda: calls.append(1)) for _ in range(3)] == [True] * 3
    assert calls == [1]


@pytest.mark.parametrize(("is_kept", "often"), [(True, "once on this machine"), (False, "no folder keeps them")])
def test_a_search_goes_on_while_loops_are_compiled_and_this_is_announced_once(caplog, monkeypatch, is_kept, often):
    monkeypatch.setattr(loading, "_is_kept", is_kept)
    compiling, one, other = Compiling(), Loading(), Loading()
    assert [one.is_done(compiling), one.is_done(compiling), other.is_done(compiling)] == [False] * 3
    compiling.released.set()
    one.wait()
    other.wait()
    assert one.is_done(compiling) and other.is_done(compiling) and compiling.calls == 2
    assert [often in record.message for record in caplog.records] == [True]


def test_small_work_waits_for_no_load_but_uses_it_once_it_is_done():
    released, loaded = Event(), Loading()
    assert not loaded.is_done(lambda: released.wait(10), waits=False)
    released.set()
    loaded.wait()
    assert loaded.is_done(lambda: 1 / 0, waits=False)


def test_those_that_expect_work_wait_for_the_compiler():
    compiling, loaded = Compiling(), Loading()
    assert not loaded.is_done(compiling)
    compiling.released.set()
    with kernels.expecting_work():
        assert loaded.is_done(compiling)
    assert not kernels.expects_work()


def test_loops_that_cannot_be_compiled_are_done_without(caplog):
    loaded = Loading()
    assert [loaded.is_done(lambda: 1 / 0) for _ in range(2)] == [False] * 2
    assert [record.message for record in caplog.records] == [
        "compiled search loops could not be loaded; searches do without: division by zero"
    ]
    with kernels.expecting_work(), pytest.raises(ZeroDivisionError):
        loaded.is_done(lambda: None)


def test_what_an_index_raises_is_left_to_the_search_and_tried_again():
    loaded = Loading()

    def fail():
        raise DamagedIndex("a block")

    assert not loaded.is_done(fail)
    assert loaded.is_done(lambda: None)


ANNOUNCED = "compiling search loops, once on this machine; until then queries are answered without them"
# A process whose loops no cache holds; the sums alone are compiled, in a few seconds.
SEARCHES = """
import json, sys
import numpy as np
import mvindex
from mvindex import engines, kernels

if sys.argv[3] == "sums":
    engines.has_int8_products = lambda: False
    sys.modules["torch"] = None
kernels.WORTH_LOADING = -1
queries = np.load(sys.argv[2])
with mvindex.open(sys.argv[1]) as index:
    def search():
        found = [index.search(queries[:1], 7), index.search(queries, 7, scoring="drpq")]
        return [[[hit.id, hit.score.hex(), hit.slot] for hit in one.hits] for results in found for one in results]
    is_loaded, before = index.warm_up(), search()
    # Private: the thread that warms up.
    index._warming.wait()
    after = [search(), index.warm_up()]
print(json.dumps([is_loaded, before, *after]))
"""


@pytest.mark.parametrize("loops", ["sums", pytest.param("all", marks=[pytest.mark.full, pytest.mark.long])])
def test_searches_have_the_same_results_before_and_after_loops_are_compiled(tmp_path, loops):
    pytest.importorskip("numba")
    rng = np.random.default_rng(4)
    with mvindex.create(tmp_path / "x.mvx", dim=24) as index:
        index.add_views(documents(60), list(rng.normal(size=(60, 3, 24)).astype(np.float32)))
    np.save(tmp_path / "queries.npy", rng.normal(size=(5, 24)).astype(np.float32))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", SEARCHES, str(tmp_path / "x.mvx"), str(tmp_path / "queries.npy"), loops]
    for was_compiled in (False, True):
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        is_loaded, before, after, is_loaded_then = json.loads(done.stdout)
        assert (is_loaded, is_loaded_then) == (was_compiled, True) and before == after and len(before) == 6
        assert done.stderr.splitlines() == ([] if was_compiled else [ANNOUNCED])
