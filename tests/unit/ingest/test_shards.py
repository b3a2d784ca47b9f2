"""Documents into shards: routing, ordinals as of one index, runs that did not end, shards filled apart."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mvindex
from mvindex.errors import ConfigError, DocumentError, IndexLocked, StoreError
from mvindex.index import store_of
from mvindex.index.factory import open_shard_index
from mvindex.ingest import IngestHooks, pipeline, shards
from mvindex.ingest.pipeline import ingest_store
from mvindex.ingest.shards import Target, assemble, ingest_shards
from mvindex.store.shard_layout import ShardPlace
from tests.helpers.shard_examples import DIM, answers, corpus, entries, fill_shard, fill_shards, order, stored

ROOT = Path(__file__).parents[3]


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of five documents: each shard commits often."""
    monkeypatch.setattr(pipeline, "CHUNK_DOCUMENTS", 5)


def whole(path, count, *corpora):
    with mvindex.create(path, dim=DIM, shards=count) as index:
        for documents, views in corpora:
            index.add_views(documents, views)
    return mvindex.open(path)


def unsharded(path, *corpora):
    index = mvindex.create(path, dim=DIM)
    for documents, views in corpora:
        index.add_views(documents, views)
    return index


def test_every_document_is_in_the_shard_of_its_id(tmp_path):
    with whole(tmp_path / "x.mvx", 4, corpus(60)) as index:
        for number, shard in store_of(index).sharding.stores.items():
            ids = [document.id for document in shard.scan(None, None)]
            assert ids and all(xxhash.xxh3_64_intdigest(doc_id.encode()) % 4 == number for doc_id in ids)
        assert sorted(document.id for document in index) == sorted(f"d{n}" for n in range(60))


def test_ordinals_are_positions_in_the_corpus_and_a_replaced_document_keeps_its_own(tmp_path, small_chunks):
    first, second = corpus(40), corpus(30, seed=1)
    more = corpus(20, seed=2, prefix="e")
    with whole(tmp_path / "x.mvx", 3, first, second, more) as index:
        found = {doc_id: value[0] for doc_id, value in stored(index).items()}
        assert [found[f"d{n}"] for n in range(40)] == list(range(40))
        # The second corpus replaced thirty documents and has taken their places in the count: 40 + 30.
        assert [found[f"e{n}"] for n in range(20)] == list(range(70, 90))
        assert index.get("d3").text == "text 3 of 1" and index.get("d35").text == "text 35 of 0"


def test_shards_filled_apart_are_those_filled_together(tmp_path, small_chunks):
    corpora = corpus(70), corpus(25, seed=1), corpus(30, seed=2, prefix="e")
    fill_shards(tmp_path / "apart.mvx", 4, *corpora)
    with pytest.raises(StoreError, match="mvindex assemble"):
        mvindex.open(tmp_path / "apart.mvx")
    report = assemble(tmp_path / "apart.mvx")
    assert (report.shards, report.documents) == (4, 100)
    with mvindex.open(tmp_path / "apart.mvx") as apart, whole(tmp_path / "together.mvx", 4, *corpora) as together:
        assert stored(apart) == stored(together)
        # What comes later gets the same ordinals in both.
        for index in (apart, together):
            index.add_views(*corpus(10, seed=3, prefix="f"))
        assert stored(apart) == stored(together)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), count=st.integers(1, 5))
def test_answers_are_those_of_an_index_without_shards(tmp_path_factory, data, count):
    """Whatever was replaced, deleted and added again; ties included."""
    folder = tmp_path_factory.mktemp("property")
    queries = np.random.default_rng(1).integers(-1, 2, (6, DIM)).astype(np.float32)
    with (
        mvindex.create(folder / "s.mvx", dim=DIM, shards=count) as sharded,
        mvindex.create(folder / "u.mvx", dim=DIM) as one,
    ):
        for seed in range(data.draw(st.integers(1, 4))):
            documents, views = corpus(30, seed=seed)
            kept = data.draw(st.lists(st.sampled_from(range(30)), unique=True, min_size=1))
            gone = data.draw(st.lists(st.sampled_from([f"d{n}" for n in range(30)]), unique=True))
            reports = []
            for index in (sharded, one):
                reports.append(index.add_views([documents[n] for n in kept], [views[n] for n in kept]))
                reports.append(index.delete(ids=gone))
            assert reports[:2] == reports[2:]
            assert order(sharded) == order(one)
            for options in ({}, {"scoring": "drpq", "temperature": 0.5}, {"filter": {"even": True}}):
                for top_k in (1, 7, 40):
                    assert answers(sharded, queries, top_k=top_k, **options) == answers(
                        one, queries, top_k=top_k, **options
                    )


def test_the_same_corpus_again_changes_nothing(tmp_path, small_chunks):
    with whole(tmp_path / "x.mvx", 3, corpus(40)) as index:
        before = [shard.snapshot.settings["version"] for shard in store_of(index).sharding.stores.values()]
        report = index.add_views(*corpus(40))
        assert (report.added, report.unchanged) == (0, 40)
        assert [shard.snapshot.settings["version"] for shard in store_of(index).sharding.stores.values()] == before


def test_an_id_twice_in_a_run_names_both_lines(tmp_path):
    documents, views = corpus(10)
    with mvindex.create(tmp_path / "x.mvx", dim=DIM, shards=3) as index:
        with pytest.raises(DocumentError, match=r"document 11: id 'd4' occurs at document 5 already"):
            index.add_views([*documents, documents[4]], [*views, views[4]])
        assert len(index) == 0


def stop_after(commits):
    """Hooks of a run that is stopped once it has cut so many chunks."""
    asked = iter(range(10**6))
    return IngestHooks(should_stop=lambda: next(asked) >= commits)


@pytest.mark.parametrize("commits", [1, 2, 5, 11])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path, small_chunks, commits):
    earlier, later = corpus(30), corpus(80, seed=1, prefix="e")
    mixed = [[*one, *two] for one, two in zip(earlier, later, strict=True)]
    with whole(tmp_path / "x.mvx", 3, earlier) as index:
        report = index.add_views(*mixed, hooks=stop_after(commits))
        assert report.stopped and len(index) < 110
        index.add_views(*mixed)
        with whole(tmp_path / "y.mvx", 3, earlier, mixed) as other:
            assert stored(index) == stored(other)


def test_another_corpus_after_a_run_that_was_stopped_comes_behind_it(tmp_path, small_chunks):
    with mvindex.create(tmp_path / "x.mvx", dim=DIM, shards=3) as index:
        index.add_views(*corpus(60), hooks=stop_after(4))
        there = order(index)
        assert 10 <= len(there) <= 20
        index.add_views(*corpus(30, seed=5, prefix="e"))
        ordinals = [value[0] for value in stored(index).values()]
        assert len(set(ordinals)) == len(ordinals) == len(there) + 30
        assert order(index) == [*there, *(f"e{n}" for n in range(30))]


def test_the_first_new_document_tells_another_corpus_before_many_wait(tmp_path, small_chunks, monkeypatch):
    monkeypatch.setattr(shards, "_WAITING_CHUNKS", 1)
    with mvindex.create(tmp_path / "x.mvx", dim=DIM, shards=3) as index:
        index.add_views(*corpus(200), hooks=stop_after(20))
        there = order(index)
        index.add_views(*corpus(80, seed=5, prefix="e"))
        assert order(index) == [*there, *(f"e{n}" for n in range(80))]


def test_a_run_of_one_shard_does_not_go_on_where_another_shard_has_read_further(tmp_path, small_chunks):
    path = tmp_path / "x.mvx"
    whole(path, 2, corpus(20)).close()
    with open_shard_index(path, ShardPlace(1, 2)) as shard:
        assert shard.add_views(*corpus(60, seed=1, prefix="e"), hooks=stop_after(2)).stopped
    fill_shard(path, ShardPlace(0, 2), corpus(30, seed=2, prefix="f"), corpus(30, seed=3, prefix="g"))
    with mvindex.open(path) as index:
        there = order(index)
        index.add_views(*corpus(60, seed=1, prefix="e"))
        assert sorted(order(index)[: len(there)]) == sorted(there) and len(index) > len(there)


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_run_does_not_go_on_where_a_shard_was_filled_from_another_corpus(tmp_path, small_chunks, stopped):
    path, own, other = tmp_path / "x.mvx", corpus(60, seed=1, prefix="e"), corpus(40, seed=2, prefix="f")
    whole(path, 2, corpus(20)).close()
    with open_shard_index(path, ShardPlace(stopped, 2)) as shard:
        assert shard.add_views(*own, hooks=stop_after(2)).stopped
    fill_shard(path, ShardPlace(1 - stopped, 2), other)
    with mvindex.open(path) as index:
        before = stored(index)
        message = (
            rf"shard-0000{1 - stopped}-of-00002: .*40 documents from ordinal 20 on, .*shard-0000{stopped}-of-00002 "
        )
        with pytest.raises(ConfigError, match=message):
            index.add_views(*own)
        of_other = {doc_id: value for doc_id, value in stored(index).items() if doc_id.startswith("f")}
        assert of_other == {doc_id: value for doc_id, value in before.items() if doc_id.startswith("f")}
        numbered = store_of(index).sharding.stores[1 - stopped]
        assert not [document.id for document in numbered.scan(None, None) if document.id.startswith("e")]


def test_a_run_does_not_go_on_where_a_shard_has_its_corpus_in_another_order(tmp_path, small_chunks):
    path, (documents, views) = tmp_path / "x.mvx", corpus(60, seed=1, prefix="e")
    whole(path, 2, corpus(20)).close()
    with open_shard_index(path, ShardPlace(0, 2)) as shard:
        assert shard.add_views(documents, views, hooks=stop_after(2)).stopped
    fill_shard(path, ShardPlace(1, 2), (documents[::-1], views[::-1]))
    with mvindex.open(path) as index, pytest.raises(ConfigError, match="another corpus"):
        index.add_views(documents, views)


def test_a_run_goes_on_where_another_shard_has_ended_it(tmp_path, small_chunks):
    path, earlier, own = tmp_path / "x.mvx", corpus(20), corpus(60, seed=1, prefix="e")
    whole(path, 2, earlier).close()
    with open_shard_index(path, ShardPlace(0, 2)) as shard:
        assert shard.add_views(*own, hooks=stop_after(2)).stopped
    fill_shard(path, ShardPlace(1, 2), own)
    with mvindex.open(path) as index, whole(tmp_path / "y.mvx", 2, earlier, own) as together:
        index.add_views(*own)
        assert stored(index) == stored(together)


def test_a_shard_that_was_stopped_goes_on_only_with_its_own_corpus(tmp_path, small_chunks):
    place, path = ShardPlace(1, 2), tmp_path / "x.mvx"
    fill_shard(path, place, corpus(20))
    with open_shard_index(path, place) as shard:
        assert shard.add_views(*corpus(60, seed=1, prefix="e"), hooks=stop_after(2)).stopped
        with pytest.raises(ConfigError, match="unfinished run of another corpus"):
            shard.add_views(*corpus(30, seed=2, prefix="f"))
        before = len(shard)
        report = shard.add_views(*corpus(60, seed=1, prefix="e"))
        assert report.added + report.unchanged + report.elsewhere == 60 and len(shard) > before
    fill_shard(path, ShardPlace(0, 2), corpus(20), corpus(60, seed=1, prefix="e"))
    assemble(path)
    with mvindex.open(path) as index, whole(tmp_path / "y.mvx", 2, corpus(20), corpus(60, seed=1, prefix="e")) as other:
        assert stored(index) == stored(other)


KILLED = """
import os, signal, sys
sys.path.insert(0, {root!r})
from tests.helpers.shard_examples import corpus, fill_shard
from mvindex.ingest import pipeline
from mvindex.store.shard_layout import ShardPlace
pipeline.CHUNK_DOCUMENTS = 5
steps = iter(range(10**6))
def die(event, arguments):
    if event == "mvindex.durable" and next(steps) == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
from pathlib import Path
import mvindex
path = Path({path!r})
sys.addaudithook(die)
fill_shard(path, ShardPlace(1, 3), corpus(60), corpus(30, seed=1, prefix="e"))
"""


@pytest.mark.parametrize("step", [39, 57, 75, 90, 103, 117])
def test_a_shard_that_is_killed_and_begun_again_is_the_one_that_was_not(tmp_path, small_chunks, step):
    path, place, corpora = tmp_path / "x.mvx", ShardPlace(1, 3), (corpus(60), corpus(30, seed=1, prefix="e"))
    code = KILLED.format(root=str(ROOT), path=str(path), step=step)
    died = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    fill_shard(path, place, *corpora)
    fill_shard(tmp_path / "y.mvx", place, *corpora)
    with open_shard_index(path, place) as shard, open_shard_index(tmp_path / "y.mvx", place) as other:
        assert stored(shard) == stored(other)
        mine, others = (store_of(each).sharding.stores[1].snapshot.settings for each in (shard, other))
        assert mine["runs"] == others["runs"] and mine["next_ordinal"] == 90


def test_two_processes_fill_two_shards_at_the_same_time(tmp_path):
    path = tmp_path / "x.mvx"
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "from tests.helpers.shard_examples import corpus, fill_shard\n"
        "from mvindex.store.shard_layout import ShardPlace\n"
        "sys.stdin.readline()\n"
        f"fill_shard(Path({str(path)!r}), ShardPlace(int(sys.argv[1]), 2), corpus(3000))\n"
    )
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen([*command, str(n)], stdin=subprocess.PIPE, env=os.environ) for n in range(2)]
    for process in running:
        process.stdin.write(b"go\n")
        process.stdin.close()
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    assert assemble(path).documents == 3000
    with mvindex.open(path) as index:
        assert order(index) == [f"d{n}" for n in range(3000)]


def test_a_whole_run_is_refused_while_a_shard_is_written_to(tmp_path):
    with whole(tmp_path / "x.mvx", 3, corpus(10)) as index, mvindex.open(tmp_path / "x.mvx") as other:
        with store_of(other).sharding.stores[1].writing(), pytest.raises(IndexLocked, match="shard 1 of 3"):
            index.add_views(*corpus(5, prefix="e"))
        assert index.add_views(*corpus(5, prefix="e")).added == 5


def test_a_shard_takes_no_single_documents_but_whole_corpora(tmp_path):
    with whole(tmp_path / "x.mvx", 2, corpus(10)) as index, pytest.raises(ConfigError, match="is a shard of an index"):
        ingest_store(store_of(index).sharding.stores[0], entries(*corpus(5, prefix="e")), None)


def test_shards_of_two_counts_do_not_go_together(tmp_path):
    fill_shard(tmp_path / "x.mvx", ShardPlace(0, 2), corpus(10))
    with pytest.raises(ConfigError, match="holds shards of an index of 2, got shard 0/3"):
        fill_shard(tmp_path / "x.mvx", ShardPlace(0, 3), corpus(10))
    unsharded(tmp_path / "u.mvx", corpus(5)).close()
    with pytest.raises(ConfigError, match="without shards"):
        fill_shard(tmp_path / "u.mvx", ShardPlace(0, 3), corpus(10))


def test_the_same_documents_as_entries_name_their_places(tmp_path):
    documents, views = corpus(10)
    with mvindex.create(tmp_path / "x.mvx", dim=DIM, shards=3) as index:
        twice = [*entries(documents, views), entries(documents, views)[2]._replace(source_location="line 99")]
        stores = store_of(index).sharding.stores
        with pytest.raises(DocumentError, match="line 99: id 'd2' occurs at line 3 already"):
            ingest_shards(Target(stores=stores, count=3, encode=None), twice)
