"""Engines over shards: one quantiser for all, builds that go on, tuning and upkeep of the whole."""

import json
import shutil
from contextlib import closing

import numpy as np
import pytest

import mvindex
from mvindex.durable import file_checksum
from mvindex.engines import build as building
from mvindex.engines import build_shards as shard_building
from mvindex.engines.build import EngineChoice, build_engine, engine_choice
from mvindex.engines.build_shards import build_one_shard, train_shards
from mvindex.errors import ConfigError, EngineError
from mvindex.index import store_of
from mvindex.ingest.shards import assemble
from mvindex.maintenance.dispatch import repair, salvage, verify
from mvindex.records import no_progress
from mvindex.store.shard_layout import shard_of
from mvindex.store.sharded import open_sharded_store
from mvindex.testing import unit
from tests.helpers.shard_examples import answers, fill_shards, stored, stored_in

faiss = pytest.importorskip("faiss")

DIM, COUNT, SHARDS = 16, 1500, 3


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    rng = np.random.default_rng(4)
    views = unit(rng.standard_normal((COUNT, 1, DIM)) + 0.5 * rng.standard_normal((COUNT, 3, DIM)))
    path = tmp_path_factory.mktemp("built") / "x.mvx"
    with mvindex.create(path, dim=DIM, shards=SHARDS) as index:
        index.add_views([mvindex.Document(f"d{n}", f"text {n}") for n in range(COUNT)], views)
    return path


@pytest.fixture
def path(made, tmp_path):
    shutil.copytree(made, tmp_path / "x.mvx")
    return tmp_path / "x.mvx"


@pytest.fixture
def queries():
    return np.random.default_rng(6).standard_normal((40, DIM)).astype(np.float32)


def engine_files(index):
    return {
        number: shard.snapshot.directory / shard.snapshot.settings["engine"]["directory"] / "index.faiss"
        for number, shard in store_of(index).sharding.stores.items()
    }


def centroids(file):
    index = faiss.read_index(str(file))  # held: what follows only points into it
    ivf = faiss.extract_index_ivf(index)
    return faiss.downcast_index(ivf.quantizer).reconstruct_n(0, ivf.nlist)


@pytest.mark.parametrize("kind", ["ivf-flat", "ivf-sq8", "ivf-pq", "ivf-rabitq"])
def test_all_shards_share_one_quantiser_for_the_views_of_all(path, queries, kind):
    with mvindex.open(path) as index:
        report = index.admin.build(kind)
        assert (report.kind, report.documents, report.views) == (kind, COUNT, 3 * COUNT)
        first, *others = [centroids(file) for file in engine_files(index).values()]
        # 4,500 views, 400 a list: the nearest power of two.
        assert len(first) == 8
        assert all((first == other).all() for other in others)
        found = [{hit.id for hit in result.hits} for result in index.search(queries, top_k=10)]
        true = [{hit.id for hit in result.hits} for result in index.search(queries, top_k=10, exact=True)]
        assert np.mean([len(one & two) / 10 for one, two in zip(found, true, strict=True)]) > 0.9
        assert not any(result.exact for result in index.search(queries, top_k=10))
        assert index.info().kind == kind


def test_a_build_that_was_killed_goes_on_with_what_was_learnt(path, monkeypatch):
    built = building.build_engine

    def fail_at_the_second(store, choice, on_progress):
        if "shard-00001" in str(store.directory):
            raise KeyboardInterrupt
        return built(store, choice, on_progress)

    with mvindex.open(path) as index:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(shard_building, "build_engine", fail_at_the_second)
            index.admin.build("ivf-pq", nlist=16)
        learnt = json.loads((path / "trained.json").read_text())["checksum"]
        version = store_of(index).sharding.stores[0].snapshot.settings["version"]
        index.admin.build("ivf-pq", nlist=16)
        assert store_of(index).sharding.stores[0].snapshot.settings["version"] == version
        for shard in store_of(index).sharding.stores.values():
            assert shard.snapshot.settings["engine"]["settings"]["trained"] == learnt
        assert not (path / "trained.json").exists()
        assert [file.name for file in path.glob("trained-*")] == [f"trained-{learnt}.faiss"]
        index.admin.build("ivf-sq8", nlist=16)
        (file,) = path.glob("trained-*")
        assert file_checksum(file) != learnt


def test_shards_built_one_by_one_are_those_built_together(path, queries):
    shutil.copytree(path, path.with_name("y.mvx"))
    with mvindex.open(path) as together, mvindex.open(path.with_name("y.mvx")) as apart:
        together.admin.build("ivf-pq", nlist=16)
        store, choice = store_of(apart), engine_choice("ivf-pq", 16, None)
        with pytest.raises(ConfigError, match="--train-only comes first"):
            build_one_shard(store, 1, choice, no_progress)
        train_shards(apart.path, store.sharding.stores, choice, no_progress)
        for number in (2, 0, 1):
            build_one_shard(store, number, choice, no_progress)
        with pytest.raises(ConfigError, match="expected a shard from 0 to 2, got 3"):
            build_one_shard(store, 3, choice, no_progress)
        assert answers(apart, queries) == answers(together, queries)
        checksums = [[file_checksum(file) for file in engine_files(index).values()] for index in (together, apart)]
        assert checksums[0] == checksums[1]


def test_what_was_learnt_for_another_kind_is_refused(path):
    with mvindex.open(path) as index:
        stores = store_of(index).sharding.stores
        trained = train_shards(path, stores, engine_choice("ivf-sq8", 16, None), no_progress)
        store = stores[0]
        with pytest.raises(EngineError, match="is not trained for kind 'ivf-pq' and views of 16 dims"):
            build_engine(store, EngineChoice(kind="ivf-pq", trained=trained))
        assert index.info().kind == "exact"


@pytest.mark.full
def test_tuning_measures_all_shards_together_and_each_is_searched_so(path, queries):
    with mvindex.open(path) as index:
        with pytest.raises(ConfigError, match="nothing to tune"):
            index.admin.tune(queries)
        index.admin.build("ivf-pq", nlist=64)
        report = index.admin.tune(queries, top_k=10, target_recall=0.8)
        assert report.chosen is not None and report.queries == 40
        assert index.info().search == report.chosen.search
        assert {str(shard.info().search) for shard in store_of(index).sharding.stores.values()} == {
            str(report.chosen.search)
        }
        found = [{hit.id for hit in result.hits} for result in index.search(queries, top_k=10)]
        true = [{hit.id for hit in result.hits} for result in index.search(queries, top_k=10, exact=True)]
        recall = np.mean([len(one & two) / 10 for one, two in zip(found, true, strict=True)])
        assert recall == pytest.approx(report.chosen.recall, abs=1e-9)
        assert index.admin.tune(target_recall=0.5).are_own_views


def test_shards_without_documents_need_no_engine(tmp_path, queries):
    views = unit(np.random.default_rng(4).standard_normal((5, 2, DIM)))
    with mvindex.create(tmp_path / "few.mvx", dim=DIM, shards=8) as index:
        with pytest.raises(ConfigError, match="the index is empty"):
            index.admin.build("ivf-flat")
        index.add_views([mvindex.Document(f"d{n}", f"text {n}") for n in range(5)], views)
        wanted = answers(index, queries, top_k=3)
        for kind in ("ivf-flat", "flat", "exact"):
            assert index.admin.build(kind).documents == 5
            assert [found[0] for found in answers(index, queries, top_k=3)] == [found[0] for found in wanted]
            assert index.info().kind == kind
        assert index.admin.build().kind == "exact"


def test_compacting_keeps_documents_and_what_was_learnt(path, queries):
    with mvindex.open(path) as index:
        index.admin.build("ivf-sq8", nlist=16)
        learnt = store_of(index).sharding.stores[0].snapshot.settings["engine"]["settings"]["trained"]
        index.delete(ids=[f"d{n}" for n in range(0, COUNT, 3)])
        wanted, exact = stored(index), answers(index, queries, exact=True)
        report = index.admin.compact()
        assert (report.documents, report.dropped) == (COUNT - 500, 500)
        assert stored(index) == wanted and answers(index, queries, exact=True) == exact
        for shard in store_of(index).sharding.stores.values():
            record = shard.snapshot.settings["engine"]
            assert record["settings"]["trained"] == learnt and record["settings"]["num_views"] < 3 * COUNT / SHARDS
            assert shard.snapshot.settings["runs"]["last"][0]["documents"] == COUNT


def test_a_snapshot_is_the_whole_index(path, queries):
    with mvindex.open(path) as index:
        index.admin.build("ivf-pq", nlist=16)
        report = index.admin.snapshot(path.with_name("copy.mvx"))
        assert report.documents == COUNT
        wanted = answers(index, queries)
        with pytest.raises(ConfigError, match="lies inside the index"):
            index.admin.snapshot(path / "copy.mvx")
    with mvindex.open(path.with_name("copy.mvx")) as copy:
        assert answers(copy, queries) == wanted
    assert verify(path.with_name("copy.mvx")).is_sound


def test_verify_names_the_damage_and_salvage_saves_the_rest(path, queries):
    assert verify(path).is_sound and verify(path).documents == COUNT
    (views,) = (path / "shard-00001-of-00003").glob("generation-*/views-*")
    content = bytearray(views.read_bytes())
    content[0] ^= 1
    views.write_bytes(content)
    shutil.rmtree(path / "shard-00002-of-00003")
    report = verify(path)
    assert {problem.file.split("/shard-")[1][:5] for problem in report.problems} == {"00001", "00002"}
    assert report.damaged_documents == 1
    saved = salvage(path, path.with_name("saved.mvx"))
    left = sum(shard_of(f"d{n}", SHARDS) != 2 for n in range(COUNT)) - 1
    assert saved.documents == left and len(saved.lost) == 2
    with mvindex.open(path, allow_partial=True) as damaged, mvindex.open(path.with_name("saved.mvx")) as index:
        shards = [part.store for part in store_of(damaged).parts()]
        gone = next(shards[1].scan(None, None)).id
        assert len(index) == left and gone not in index
        kept, found = stored_in(shards[0]), stored(index)
        assert {doc_id: found[doc_id] for doc_id in kept} == kept
        # What was lost can be ingested again.
        assert index.add_views([mvindex.Document(gone, "again")], [unit(np.ones((1, DIM)))]).added == 1
    assert verify(path.with_name("saved.mvx")).is_sound


def test_what_is_derived_is_made_again(path):
    (path / "shards.json").write_text("{")
    (current,) = (path / "shard-00001-of-00003").glob("current.json")
    current.write_text("{")
    assert {problem.is_derived for problem in verify(path).problems} == {True}
    assert repair(path).made_again == (str(current), str(path / "shards.json"))
    assert verify(path).is_sound
    with mvindex.open(path) as index:
        assert len(index) == COUNT
    assert repair(path).made_again == ()


@pytest.mark.parametrize("kind", ["flat", "ivf-flat", "ivf-pq"])
def test_shards_filled_and_built_apart_answer_as_one_index(tmp_path, kind):
    """Hits of exact kinds are equal; approximate ones, taught once by views of all shards, find as much."""
    rng = np.random.default_rng(8)
    views = unit(rng.standard_normal((COUNT, 1, DIM)) + 0.5 * rng.standard_normal((COUNT, 3, DIM)))
    documents = [mvindex.Document(f"d{n}", f"text {n}") for n in range(COUNT)]
    fill_shards(tmp_path / "apart.mvx", SHARDS, (documents, views))
    assemble(tmp_path / "apart.mvx")
    choice = engine_choice(kind, None, None)
    with closing(open_sharded_store(tmp_path / "apart.mvx")) as store:
        if kind != "flat":
            train_shards(tmp_path / "apart.mvx", store.sharding.stores, choice, no_progress)
    for number in range(SHARDS):
        with closing(open_sharded_store(tmp_path / "apart.mvx")) as store:
            build_one_shard(store, number, choice, no_progress)
    questions = rng.standard_normal((500, DIM)).astype(np.float32)
    with mvindex.open(tmp_path / "apart.mvx") as apart, mvindex.create(tmp_path / "one.mvx", dim=DIM) as one:
        one.add_views(documents, views)
        one.admin.build(kind)
        truth = one.search(questions, exact=True)
        assert apart.search(questions, exact=True) == truth
        found = [index.search(questions) for index in (apart, one)]
        if kind == "flat":
            assert [result.hits for result in found[0]] == [result.hits for result in found[1]]
        recalls = np.zeros((2, len(truth)))
        for shares, results in zip(recalls, found, strict=True):
            for number, (own, true) in enumerate(zip(results, truth, strict=True)):
                shares[number] = len({hit.id for hit in own} & {hit.id for hit in true}) / 10
        # The quantizers are trained on different samples: two standard errors of the paired differences are chance.
        lost = recalls[1] - recalls[0]
        assert lost.mean() <= 0.002 + 2 * lost.std() / np.sqrt(len(lost))
