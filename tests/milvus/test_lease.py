"""The claim of a writer: once it has expired it stays so, and of what was still on its way nothing counts."""

import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import mvindex
from mvindex import Document
from mvindex.errors import IndexLocked
from mvindex.index import store_of
from mvindex.testing import unit
from mvindex_connectors.milvus import lease as lease_module
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.lease import Lease

pytestmark = pytest.mark.needs("milvus-lite")


class Clock:
    """The clocks of the claims, set forward by hand."""

    def __init__(self, monkeypatch):
        self.passed = 0.0
        clocks = {name: self.clock_of(getattr(time, name)) for name in ("monotonic", "time")}
        monkeypatch.setattr(lease_module, "time", SimpleNamespace(**clocks))

    def clock_of(self, clock):
        return lambda: clock() + self.passed


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def index(tmp_path):
    with mvindex.create(f"milvus-lite:{tmp_path / 'x.db'}?lease=30", dim=8) as index:
        index.add_views([Document("first", "t")], views(0))
        yield index


def views(seed):
    return [unit(np.random.default_rng(seed).standard_normal((2, 8)))]


@contextmanager
def away_during(monkeypatch, step, meanwhile):
    """Inside it, the first try of a step finds no Milvus; `meanwhile` is called before the second one."""
    call, tries = Connection.call, []

    def calling(connection, name, function):
        def tried(client, **options):
            if name != step or tries:
                return function(client, **options)
            tries.append(name)
            meanwhile()
            raise ConnectionError("server unavailable: fail connecting")

        return call(connection, name, tried)

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "call", calling)
        yield
    assert tries


def test_a_claim_that_expired_while_milvus_was_away_is_never_revived(index, clock, monkeypatch):
    first, second = (Lease(store_of(index).connection) for _ in range(2))
    entered = []

    def come():
        clock.passed += 40
        entered.append(second.hold())
        entered[0].__enter__()

    with first.hold():
        clock.passed += 20
        with away_during(monkeypatch, "claiming to be the writer", come), pytest.raises(IndexLocked):
            first.check()
        for _ in range(2):
            with pytest.raises(IndexLocked, match="writes here now"):
                first.check()
        second.check()
    entered[0].__exit__(None, None, None)


def test_a_claim_is_renewed_in_time_and_another_writer_is_refused(index, clock):
    first, second = (Lease(store_of(index).connection) for _ in range(2))
    with first.hold():
        for _ in range(4):
            clock.passed += 20
            first.check()
        with pytest.raises(IndexLocked, match="is writing to this index"), second.hold():
            pass
        first.check()


def test_a_writer_that_sees_another_one_stops_though_its_claim_holds(index, clock):
    """Clocks of two machines differ: the claim has expired for the other one."""
    first, second = (Lease(store_of(index).connection) for _ in range(2))
    with first.hold():
        clock.passed += 40
        with second.hold():
            clock.passed -= 25
            second._renew()
            first._renew()
            with pytest.raises(IndexLocked, match="writes here now"):
                first.check()
            second.check()


@pytest.mark.parametrize("step", ["writing views", "writing records"])
def test_what_an_expired_writer_has_on_its_way_is_not_written_over_the_next_writers(index, clock, monkeypatch, step):
    def come():
        clock.passed += 40
        with mvindex.open(index.where) as other:
            other.add_views([Document("theirs", "t")], views(1))

    with away_during(monkeypatch, step, come), pytest.raises(IndexLocked):
        index.add_views([Document("mine", "t")], views(2))
    index.refresh()
    assert index.admin.verify().is_sound
    assert {document.id for document in index} == {"first", "theirs"}
    index.add_views([Document("mine", "t")], views(2))
    assert {document.id for document in index} == {"first", "theirs", "mine"}
