"""Words as they are kept: in commits, segments, shards and copies, damaged, saved and made again."""

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, DamagedIndex, StaleReader, StoreError, Unsupported
from mvindex.index import embedded_store_of, store_of
from mvindex.index.factory import create_shard_index
from mvindex.ingest.shards import assemble
from mvindex.records import no_progress
from mvindex.store import schema
from mvindex.store.connections import FILE_NAME
from mvindex.store.lexical import postings
from mvindex.store.lexical.postings import read_segments
from mvindex.store.lexical.tokenizer import Lexical
from mvindex.store.shard_layout import ShardPlace
from tests.helpers import lexical_reference as slow
from tests.helpers.lexical_examples import check_against_slow, hits, made


def test_many_small_commits_leave_few_segments_and_the_scores_of_one(tmp_path):
    documents, views = slow.corpus(150, seed=5)
    with (
        mvindex.create(tmp_path / "small.mvx", dim=4, lexical="unicode") as small,
        mvindex.create(tmp_path / "big.mvx", dim=4, lexical="unicode") as big,
    ):
        big.add_views(documents, views)
        sizes = [1] * 20 + [3, 60, 1, 1, 2, 1, 30, 1, 1, 30]
        begin = 0
        for size in sizes:
            small.add_views(documents[begin : begin + size], views[begin : begin + size])
            begin += size
        assert begin == len(documents)
        with closing(sqlite3.connect(embedded_store_of(small).snapshot.directory / FILE_NAME)) as connection:
            segments = read_segments(connection)
        assert len(segments) <= 14
        assert segments[-1].end == 150
        for question in ("oil", "war the price", "mountain delta"):
            assert hits(small, question, top_k=150) == hits(big, question, top_k=150)


def test_segments_of_long_documents_are_not_merged_beyond_what_memory_is_meant_to_hold(tmp_path, monkeypatch):
    # 20 words a document: eight single ones have 160 postings, the next merge would have eight times as many.
    monkeypatch.setattr(postings, "_MAX_POSTINGS", 200)
    with mvindex.create(tmp_path / "a.mvx", dim=1, lexical="unicode") as index:
        for number in range(70):
            text = " ".join(f"w{number + place}" for place in range(20))
            index.add_views([mvindex.Document(f"d{number}", text)], np.ones((1, 1)))
        with closing(sqlite3.connect(index.path / "generation-000001" / "catalog.sqlite")) as connection:
            sizes = [segment.num_rows for segment in read_segments(connection)]
        assert sizes == [8] * 8 + [1] * 6
        found = {hit.id for hit in index.search("w40", mode="lexical", top_k=30).hits}
        assert found == {f"d{number}" for number in range(21, 41)}


def test_a_reader_keeps_its_own_counts_while_others_write(tmp_path):
    index = made(tmp_path / "a.mvx", ["oil war", "oil", "peace"])
    with mvindex.open(tmp_path / "a.mvx") as reader:
        before = hits(reader, "oil peace")
        for number in range(20):
            index.add_views([mvindex.Document(f"n{number}", "oil oil peace")], np.ones((1, 2)))
        index.delete(ids=["d0"])
        assert hits(reader, "oil peace") == before
        reader.refresh()
        assert hits(reader, "oil peace") == hits(index, "oil peace") != before
        index.admin.enable_lexical("english")
        with pytest.raises(StaleReader, match="refresh"):
            hits(reader, "oil")


def test_a_commit_that_fails_leaves_the_words_as_they_were(tmp_path, monkeypatch):
    index = made(tmp_path / "a.mvx", ["oil", "war"])
    before = hits(index, "oil war river")

    def full(*arguments):
        raise sqlite3.OperationalError("database or disk is full")

    # The last thing that a commit does, after the words were written.
    monkeypatch.setattr(schema, "write_settings", full)
    with pytest.raises(StoreError, match="disk is full"):
        index.add_views([mvindex.Document("d2", "river")], np.ones((1, 2)))
    with pytest.raises(StoreError, match="disk is full"):
        index.admin.enable_lexical("english")
    monkeypatch.undo()
    assert hits(index, "oil war river") == before
    assert index.admin.verify().is_sound
    index.add_views([mvindex.Document("d2", "river")], np.ones((1, 2)))
    assert dict(hits(index, "river")).keys() == {"d2"}


def test_an_index_without_words_says_how_to_get_them_and_gets_them(tmp_path):
    documents, views = slow.corpus(40, seed=2)
    with mvindex.create(tmp_path / "a.mvx", dim=4) as index:
        index.add_views(documents, views)
        index.delete(ids=["d1"])
        for options in ({"mode": "lexical"}, {"mode": "hybrid", "text": "oil"}):
            with pytest.raises(Unsupported, match="build --lexical"):
                index.search("oil" if options["mode"] == "lexical" else np.ones(4), **options)
        index.admin.enable_lexical("unicode")
        check_against_slow(index, "oil river")
        index.add_views([mvindex.Document("new", "oil")], np.ones((1, 4)))
        check_against_slow(index, "oil river")
        index.admin.disable_lexical()
        assert index.info().lexical is None
        assert index.admin.verify().is_sound
        with pytest.raises(Unsupported):
            hits(index, "oil")
        with pytest.raises(ConfigError, match="klingon"):
            index.admin.enable_lexical("klingon")


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE lexical_blocks SET postings = zeroblob(length(postings))",
        "DELETE FROM lexical_blocks",
        "UPDATE lexical_blocks SET key = key + 1",
        "UPDATE lexical_segments SET num_rows = num_rows + 1",
        "UPDATE lexical_segments SET lengths = zeroblob(length(lengths))",
        "UPDATE lexical_segments SET num_blocks = 2",
        "DELETE FROM lexical_segments",
    ],
)
def test_damaged_words_are_never_answered_from_and_a_build_makes_them_again(tmp_path, harm):
    index = made(tmp_path / "a.mvx", ["oil war", "war"])
    before = hits(index, "oil war")
    index.close()
    [generation] = (tmp_path / "a.mvx").glob("generation-*")
    with closing(sqlite3.connect(generation / FILE_NAME)) as connection, connection:
        connection.execute(harm)
    with mvindex.open(tmp_path / "a.mvx") as damaged:
        with pytest.raises(DamagedIndex):
            hits(damaged, "oil war")
        report = damaged.admin.verify()
        assert [problem.is_derived for problem in report.problems] == [True]
        assert report.damaged_documents == 0
        with pytest.raises(DamagedIndex):
            damaged.admin.snapshot(tmp_path / "copy.mvx")
        assert damaged.admin.rebuild_lexical_if_damaged()
        assert not damaged.admin.rebuild_lexical_if_damaged()
        assert hits(damaged, "oil war") == before
        assert damaged.admin.verify().is_sound


@pytest.mark.parametrize("how", ["snapshot", "migrate", "salvage", "cp"])
def test_copies_of_an_index_keep_its_words(tmp_path, how):
    from mvindex.io.migrate import migrate

    index = made(tmp_path / "a.mvx", ["oil war", "war", "peace"])
    index.delete(ids=["d2"])
    before = hits(index, "oil war")
    target = tmp_path / "b.mvx"
    if how == "snapshot":
        index.admin.snapshot(target)
    elif how == "migrate":
        migrate(index.path, target)
    elif how == "salvage":
        mvindex.salvage(index.path, target)
    else:
        index.close()
        shutil.copytree(index.path, target)
    with mvindex.open(target) as copy:
        assert hits(copy, "oil war") == before
        assert copy.admin.verify().is_sound


def test_a_missing_shard_is_told_of_and_its_words_are_not_counted(tmp_path):
    documents, views = slow.corpus(60, seed=4)
    with mvindex.create(tmp_path / "a.mvx", dim=4, lexical="unicode", shards=3) as index:
        index.add_views(documents, views)
    shutil.rmtree(tmp_path / "a.mvx" / "shard-00001-of-00003")
    with mvindex.open(tmp_path / "a.mvx", allow_partial=True) as partial:
        for options in ({"mode": "lexical", "query": "oil"}, {"mode": "hybrid", "query": np.ones(4), "text": "oil"}):
            result = partial.search(**options)
            assert (result.exact, result.missing_shards) == (False, (1,))
        check_against_slow(partial, "oil war")


def test_shards_whose_words_are_told_apart_differently_are_refused(tmp_path):
    documents, views = slow.corpus(30, seed=4)
    with mvindex.create(tmp_path / "a.mvx", dim=4, lexical="unicode", shards=2) as index:
        index.add_views(documents, views)
        # As a build that was killed between two shards leaves it.
        second = store_of(index).sharding.stores[1]
        with second.writing() as writer:
            writer.set_lexical(Lexical.ENGLISH, no_progress)
        with pytest.raises(StoreError, match="build --lexical"):
            hits(index, "oil")
        index.admin.enable_lexical("english")
        check_against_slow(index, "oil war")
        first = store_of(index).sharding.stores[0]
        with first.writing() as writer:
            writer.set_lexical(None, no_progress)
        with pytest.raises(Unsupported, match="shard-00000-of-00002"):
            hits(index, "oil")


def test_shards_that_are_filled_alone_are_searched_as_one_and_must_be_alike(tmp_path):
    documents, views = slow.corpus(50, seed=7)
    kinds = {"same.mvx": ("unicode", "unicode"), "other.mvx": ("unicode", "english"), "none.mvx": ("unicode", None)}
    for name, lexical in kinds.items():
        for number in (0, 1):
            place = ShardPlace(number, 2)
            with create_shard_index(tmp_path / name, place, dim=4, lexical=lexical[number]) as shard:
                shard.add_views(documents, views)
    assemble(tmp_path / "same.mvx")
    with mvindex.open(tmp_path / "same.mvx") as index:
        check_against_slow(index, "oil river")
        assert index.info().lexical == "unicode"
    for name in ("other.mvx", "none.mvx"):
        with pytest.raises(ConfigError, match="lexical"):
            assemble(tmp_path / name)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_byte_of_the_catalog_is_changed_an_answer_is_right_or_refused(tmp_path, seed):
    documents, views = slow.corpus(40, seed=6)
    with mvindex.create(tmp_path / "a.mvx", dim=4, lexical="unicode") as index:
        index.add_views(documents[:25], views[:25])
        index.add_views(documents[25:], views[25:])
        questions = ("oil", "war river", "mountain embargo the")
        before = [hits(index, question) for question in questions]
    [generation] = (tmp_path / "a.mvx").glob("generation-*")
    file = generation / FILE_NAME
    whole = file.read_bytes()
    rng = np.random.default_rng(seed)
    num_refused = 0
    for position in rng.integers(0, len(whole), 200).tolist():
        changed = bytearray(whole)
        changed[position] ^= 1 << int(rng.integers(0, 8))
        file.write_bytes(changed)
        try:
            with mvindex.open(tmp_path / "a.mvx") as damaged:
                assert [hits(damaged, question) for question in questions] == before, position
        except StoreError:
            num_refused += 1
    assert num_refused > 10


def test_a_catalog_without_its_settings_gives_documents_back_and_terms_are_counted_again(tmp_path):
    documents, views = slow.corpus(60, seed=8)
    with mvindex.create(tmp_path / "a.mvx", dim=4, lexical="unicode") as index:
        index.add_views(documents, views)
        before = hits(index, "oil war", top_k=60)
    [generation] = (tmp_path / "a.mvx").glob("generation-*")
    with closing(sqlite3.connect(generation / FILE_NAME)) as connection, connection:
        connection.execute("DELETE FROM settings")
    report = mvindex.salvage(tmp_path / "a.mvx", tmp_path / "b.mvx")
    assert (report.documents, [lost.document for lost in report.lost]) == (60, [None])
    with mvindex.open(tmp_path / "b.mvx") as saved:
        saved.admin.enable_lexical("unicode")
        assert hits(saved, "oil war", top_k=60) == before


def test_many_terms_of_a_query_read_each_block_once(tmp_path, monkeypatch):
    words = [f"w{number}" for number in range(3_000)]
    with mvindex.create(tmp_path / "a.mvx", dim=2, lexical="unicode") as index:
        for begin in range(0, 1_500, 300):
            texts = [" ".join(words[number : number + 30]) for number in range(begin, begin + 300)]
            documents = [mvindex.Document(text.split()[0], text) for text in texts]
            index.add_views(documents, np.ones((300, 1, 2), dtype=np.float32))
    blocks = []
    packed = postings.PackedBlock
    monkeypatch.setattr(postings, "PackedBlock", lambda blob: blocks.append(blob) or packed(blob))
    with mvindex.open(tmp_path / "a.mvx") as index:
        hits = index.search(" ".join(words), mode="lexical", top_k=1_500).hits
        assert len(hits) == 1_500
        # Five commits of 300 documents are five segments of four blocks.
        assert len(blocks) == len(set(blocks)) == 20
