"""Shards are assembled only when they belong together; errors name the shard and both values."""

import json
import shutil

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, DamagedIndex, StoreError
from mvindex.index import store_of
from mvindex.index.factory import create_shard_index, open_shard_index
from mvindex.ingest.shards import assemble
from mvindex.store.rows import Batch
from mvindex.store.shard_layout import ShardPlace, shard_of
from tests.helpers.shard_examples import DIM, corpus, fill_shard, fill_shards

COUNT = 3


@pytest.fixture
def path(tmp_path):
    fill_shards(tmp_path / "x.mvx", COUNT, corpus(30))
    return tmp_path / "x.mvx"


def begin_again(path, number, *corpora, **chosen):
    """The shard is made anew, in another way."""
    place = ShardPlace(number, COUNT)
    shutil.rmtree(path / place.directory)
    with create_shard_index(path, place, **{"dim": DIM, **chosen}) as shard:
        for documents, views in corpora:
            shard.add_views(documents, views)


def test_a_missing_shard_is_named_with_the_command_that_makes_it(path):
    shutil.rmtree(path / "shard-00001-of-00003")
    with pytest.raises(ConfigError, match=r"1 of 3 shards are missing.* shard-00001-of-00003: .*--shard 1/3"):
        assemble(path)
    with pytest.raises(ConfigError, match="there is no shard here"):
        assemble(path.parent)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"dtype": "fp32"}, "shard 2/3: dtype is 'fp32'; shard 0/3 has 'fp16'"),
        ({"temperature": 0.5}, "shard 2/3: temperature is 0.5; shard 0/3 has 1.0"),
        ({"prune_views": 0.1}, "shard 2/3: prune_views is 0.1; shard 0/3 has None"),
    ],
)
def test_shards_that_were_made_differently_do_not_go_together(path, chosen, message):
    begin_again(path, 2, corpus(30), **chosen)
    with pytest.raises(ConfigError, match=message):
        assemble(path)


def test_shards_of_two_encoders_do_not_go_together(path):
    def lengths(texts):
        return np.array([[float(len(text))] * DIM for text in texts])

    begin_again(path, 1, dim=None, encoder=lengths)
    with pytest.raises(ConfigError, match=r"shard 1/3: encoder is '.*lengths.*'; shard 0/3 has None"):
        assemble(path)


def test_shards_that_saw_different_corpora_do_not_go_together(path):
    begin_again(path, 1, corpus(29))
    with pytest.raises(
        ConfigError, match=r"shard 1/3: its history is .* 29 documents .*; shard 0/3 has .* 30 documents"
    ):
        assemble(path)
    begin_again(path, 1, corpus(30), corpus(5, prefix="e"))
    with pytest.raises(ConfigError, match="shard 1/3: its history is 2 corpora seen.*; shard 0/3 has 1 corpora seen"):
        assemble(path)


def test_a_shard_whose_run_has_not_ended_is_named(path):
    with open_shard_index(path, ShardPlace(1, COUNT)) as shard, pytest.raises(mvindex.MvindexError):
        documents, views = corpus(4000, prefix="e")
        twice = next(n for n, document in enumerate(documents) if shard_of(document.id, COUNT) == 1)
        shard.add_views([*documents, documents[twice]], [*views, views[twice]])
    with open_shard_index(path, ShardPlace(1, COUNT)) as shard:
        shard.add_views(*corpus(30))  # a corpus that was seen before is not in the way
    with pytest.raises(ConfigError, match=r"shard 1/3: its run is not complete, it has come to .* from ordinal 30 on"):
        assemble(path)


def put(path, number, doc_id, ordinal):
    """A document stands in a shard, whether it belongs there or not."""
    from mvindex.store.embedded import EmbeddedStore
    from mvindex.store.rows import PackedViews, content_hash

    store = EmbeddedStore(path / ShardPlace(number, COUNT).directory)
    document, row = mvindex.Document(doc_id, "text"), np.ones((1, DIM), np.float32)
    views = PackedViews(row, np.array([0, 1]), np.full((1, 2), -1))
    with store.writing() as writer:
        hashes = [content_hash(document, row)]
        writer.commit(
            Batch(documents=[document], views=views, content_hashes=hashes, ordinals=np.array([ordinal])), known={}
        )
    store.close()


def test_a_document_in_the_wrong_shard_is_named(path):
    wrong = (shard_of("stray", COUNT) + 1) % COUNT
    put(path, wrong, "stray", 1000)
    owner = shard_of("stray", COUNT)
    with pytest.raises(DamagedIndex, match=f"shard {wrong}/3: document 'stray' is in it, but belongs to shard {owner}"):
        assemble(path)


def test_two_documents_with_one_ordinal_are_found(path):
    put(path, shard_of("stray", COUNT), "stray", 7)
    with pytest.raises(DamagedIndex, match="ordinal 7 belongs to two documents, in shards "):
        assemble(path)


def test_a_renamed_shard_is_not_taken_for_another(path):
    (path / "shard-00000-of-00003").rename(path / "x")
    (path / "shard-00001-of-00003").rename(path / "shard-00000-of-00003")
    (path / "x").rename(path / "shard-00001-of-00003")
    with pytest.raises(StoreError, match="shard 0 of 3: .*expected shard 0/3, got an index made as shard 1/3"):
        assemble(path)


def test_assembling_again_after_another_corpus_keeps_the_index_id(path):
    assemble(path)
    before = json.loads((path / "shards.json").read_text())
    for number in range(COUNT):
        with mvindex.open(path / ShardPlace(number, COUNT).directory) as shard:
            assert shard.info().whole_id == before["index_id"]
    fill_shards(path, COUNT, corpus(12, prefix="e"))
    assert assemble(path).documents == 42
    assert json.loads((path / "shards.json").read_text()) == before
    with mvindex.open(path) as index:
        assert len(index) == 42


def test_many_small_runs_are_kept_short(tmp_path):
    documents, views = corpus(70)
    with mvindex.create(tmp_path / "x.mvx", dim=DIM, shards=2) as index:
        for number in range(70):
            index.add_views(documents[number : number + 1], views[number : number + 1])
        runs = [shard.snapshot.settings["runs"] for shard in store_of(index).sharding.stores.values()]
    assert runs[0] == runs[1]
    assert (runs[0]["earlier"]["count"], len(runs[0]["last"])) == (6, 64)
    assert assemble(tmp_path / "x.mvx").documents == 70


@pytest.mark.parametrize("change", [{"count": 2}, {"format_version": 9}, {"index_id": "0" * 32}, {"shards": []}])
def test_a_shards_file_that_was_changed_is_refused_and_made_again(path, change):
    assemble(path)
    record = json.loads((path / "shards.json").read_text())
    (path / "shards.json").write_text(json.dumps(record | change))
    with pytest.raises(StoreError, match="format version 9" if "format_version" in change else "mvindex assemble"):
        mvindex.open(path)
    assemble(path)
    with mvindex.open(path) as index:
        assert len(index) == 30


def test_a_shard_that_was_put_in_the_place_of_another_is_noticed(path):
    assemble(path)
    begin_again(path, 2, corpus(30))
    with pytest.raises(StoreError, match="shard 2 of 3: .* its index_id is .*; shards.json names"):
        mvindex.open(path)


def test_filling_one_shard_of_an_index_needs_the_right_count(path):
    assemble(path)
    with pytest.raises(ConfigError, match="got shard 0/4: give the same count"):
        fill_shard(path, ShardPlace(0, 4), corpus(30))
