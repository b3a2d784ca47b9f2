"""Decoded postings that are kept: valid after commits, bounded, counted and given back."""

import numpy as np
import pytest

import mvindex
from mvindex.index import embedded_store_of
from mvindex.store.lexical import reader
from mvindex.store.lexical.reader import LexicalReader, PostingsCache, TermPostings
from tests.helpers import lexical_reference as slow
from tests.helpers.lexical_examples import check_against_slow, hits, made


def postings(count, end=10_000):
    return TermPostings(np.arange(count, dtype=np.uint32), np.ones(count, np.uint8), end)


def test_a_second_question_reads_no_postings(tmp_path, monkeypatch):
    index = made(tmp_path / "a.mvx", ["oil war", "war", "peace"])
    before = hits(index, "oil war")

    def refused(*arguments):
        raise AssertionError("postings were read again")

    monkeypatch.setattr("mvindex.store.lexical.reader.read_blocks", refused)
    assert hits(index, "oil war") == before
    with pytest.raises(AssertionError, match="read again"):
        hits(index, "peace")


@pytest.mark.parametrize("shards", [None, 3])
def test_what_is_kept_grows_with_commits_and_older_readers_see_their_part(tmp_path, shards):
    documents, views = slow.corpus(90, seed=5)
    index = mvindex.create(tmp_path / "a.mvx", dim=4, lexical="unicode", shards=shards)
    readers = []
    for begin in range(0, 90, 9):
        index.add_views(documents[begin : begin + 9], views[begin : begin + 9])
        if begin % 18:
            index.delete(ids=[f"d{begin - 3}", f"d{begin}"])
        readers.append((mvindex.open(tmp_path / "a.mvx"), hits(index, "oil river war")))
        check_against_slow(index, "oil river war")
    for opened, before in readers:
        with opened:
            assert hits(opened, "oil river war") == before


def test_an_older_snapshot_of_one_generation_ignores_later_rows(tmp_path):
    index = made(tmp_path / "a.mvx", ["oil", "war oil"])
    source, older = embedded_store_of(index).snapshot.source, embedded_store_of(index).snapshot
    before = hits(index, "oil")
    index.add_views([mvindex.Document(f"n{number}", "oil oil") for number in range(5)], np.ones((5, 2)))
    assert len(hits(index, "oil")) == 7
    with embedded_store_of(index).reading(older) as catalog:
        lexical = LexicalReader(catalog)
        [term] = source.postings._terms
        [(kept, size, num_live)] = lexical.find([term])
        assert (kept.end, size, num_live) == (7, 2, 2)
        assert len(lexical.lengths) == 2
    assert len(before) == 2


def test_terms_that_were_not_asked_for_give_way(monkeypatch):
    own = PostingsCache()
    monkeypatch.setattr(reader, "_OPEN", [own])
    monkeypatch.setattr(reader, "room_bytes", lambda: 3 * postings(1000).size_bytes)
    for term in range(3):
        own.add(term, postings(1000))
    assert own.find(0) is not None
    own.add(3, postings(1000))
    assert [own.find(term) is not None for term in range(4)] == [True, False, True, True]
    # What is larger than the room is not kept, and drives out nothing.
    own.add(4, postings(9000))
    assert own.find(4) is None
    assert own.copy_bytes() == 3 * postings(1000).size_bytes
    # Asked for again with more rows it takes the place of what it was.
    own.add(3, postings(900))
    assert own.copy_bytes() == 2 * postings(1000).size_bytes + postings(900).size_bytes
    own.give_back()
    assert (own.copy_bytes(), own.find(0)) == (0, None)


def test_nothing_is_kept_while_memory_is_short(monkeypatch):
    own = PostingsCache()
    own.add(1, postings(10))
    monkeypatch.setattr(reader.MEMORY, "is_short", lambda: True)
    own.add(2, postings(10))
    assert (own.copy_bytes(), own.find(2)) == (0, None)


def test_info_counts_what_is_kept(tmp_path):
    index = made(tmp_path / "a.mvx", ["oil war"] * 100)
    assert index.info().term_bytes == 0
    hits(index, "oil")
    first = index.info().term_bytes
    # Rows and counts of one term, and lengths.
    assert 100 * (4 + 1 + 4) < first < 100 * (4 + 1 + 4) + 1000
    hits(index, "war")
    assert index.info().term_bytes > first + 500


def test_terms_split_otherwise_are_read_anew(tmp_path):
    index = made(tmp_path / "a.mvx", ["running war", "runs"])
    assert hits(index, "run") == []
    index.admin.enable_lexical("english")
    assert {doc_id for doc_id, _ in hits(index, "run")} == {"d0", "d1"}
