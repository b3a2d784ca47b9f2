"""Texts are split as FTS5 splits their indexed form whole."""

import sqlite3
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex import kernels
from mvindex.kernels import has_numba
from mvindex.kernels.loading import Loading
from mvindex.store.lexical import tokenizer
from mvindex.store.lexical.tokenizer import (
    _TOKENIZERS,
    Lexical,
    _indexed_form,
    tokenize,
    tokenize_compiled,
    tokenize_plainly,
)

if has_numba():
    from mvindex.store.lexical import chunks

needs_numba = pytest.mark.skipif(not has_numba(), reason="NOT RUN: needs numba (the extra fast)")

# Letters, separators, accents, other scripts: what decides where terms begin and end.
TEXTS = st.text(
    st.sampled_from(
        "abCE19 ._-\0\t'\x1f\x80\xa0éÉß\u0301\u0300\u2019\u2028İσς石油ก가न\u093c\u094dﬁ\u00ad\uff0c½№\ue000\U0001f600"
    ),
    max_size=40,
)


def split_whole(texts, lexical):
    """Return for each text how often it has each term's hash, by one FTS5 table of the whole texts."""
    found = [Counter() for _ in texts]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE t USING fts5(text, tokenize='{_TOKENIZERS[lexical]}')")
        connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(t, instance)")
        connection.text_factory = bytes
        connection.executemany("INSERT INTO t(rowid, text) VALUES (?, ?)", enumerate(map(_indexed_form, texts)))
        for term, number in connection.execute("SELECT term, doc FROM terms WHERE term IS NOT NULL"):
            found[number][xxhash.xxh3_64_intdigest(term)] += 1
    return found


def prepared(texts, lexical):
    return [_indexed_form(text) if lexical is Lexical.BIGRAMS else text for text in texts]


def check(texts, lexical):
    tokens = tokenize(texts, lexical)
    if has_numba():
        check_alike(tokenize_compiled(prepared(texts, lexical), lexical), tokens)
    found = [Counter() for _ in texts]
    for hashed, begin, end in zip(tokens.hashes.tolist(), tokens.starts[:-1], tokens.starts[1:], strict=True):
        assert end > begin
        for text, times in zip(tokens.texts[begin:end].tolist(), tokens.counts[begin:end].tolist(), strict=True):
            assert hashed not in found[text]
            found[text][hashed] = times
    assert found == split_whole(texts, lexical)
    assert tokens.lengths.tolist() == [sum(own.values()) for own in found]
    assert tokens.hashes.tolist() == sorted(tokens.hashes.tolist())


def check_alike(one, other):
    for column, expected in zip(one, other, strict=True):
        assert column.dtype == expected.dtype and column.tolist() == expected.tolist()


@pytest.mark.parametrize("lexical", Lexical)
@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXTS | st.text(max_size=30), max_size=4))
def test_terms_are_those_of_fts5(lexical, texts):
    check(texts, lexical)


def test_terms_are_the_same_while_chunks_are_forgotten(monkeypatch):
    monkeypatch.setattr(tokenizer, "_MOST_CHUNKS", 8)
    for first in range(0, 40, 3):
        check([" ".join(f"running{number}s run" for number in range(first, first + 7))], Lexical.ENGLISH)
    kept = tokenizer._VOCABULARIES[Lexical.ENGLISH]
    assert len(kept._recent) <= 4


def test_accents_alone_are_no_term():
    assert tokenize(["\u0301\u0301 oil"], Lexical.UNICODE).lengths.tolist() == [1]


# Chunks on both sides of a word of eight bytes, of two, of what is remembered, and of what FTS5 cuts.
LENGTHS = [1, 7, 8, 9, 15, 16, 17, 64, 65, 5000, 40_000]


@pytest.mark.parametrize("lexical", Lexical)
@pytest.mark.parametrize("letters", ["aB9", "aéÉ", "石油", "가각", "ﬁß", "x\u0301", "running "])
def test_chunks_of_any_length_have_the_terms_of_fts5(lexical, letters):
    texts = [(letters * length)[:length] for length in LENGTHS]
    check([*texts, " ".join(texts), "\0".join(texts)], lexical)


def test_texts_without_a_term_have_none():
    for texts in ([], [""], ["", " \0.", ""], ["oil", ""], ["", "oil"]):
        check(texts, Lexical.UNICODE)


@needs_numba
@pytest.mark.parametrize("lexical", Lexical)
def test_many_chunks_are_told_apart_whatever_room_they_are_given_first(lexical, monkeypatch):
    monkeypatch.setattr(chunks, "_FIRST_CHUNKS", 2)
    monkeypatch.setitem(tokenizer._COUNTERS, lexical, [])
    for begin in range(0, 6000, 1000):
        texts = [
            f"run{number} Running{number * number} {number} é{number} 石油 the" for number in range(begin, begin + 1500)
        ]
        read = prepared(texts, lexical)
        check_alike(tokenize_compiled(read, lexical), tokenize_plainly(read, lexical))
    assert len(tokenizer._COUNTERS[lexical]) == 1


@needs_numba
def test_a_full_counter_is_not_used_again(monkeypatch):
    monkeypatch.setattr(chunks, "_MOST_CHUNKS", 3)
    monkeypatch.setitem(tokenizer._COUNTERS, Lexical.UNICODE, [])
    check(["one two three"], Lexical.UNICODE)
    assert len(tokenizer._COUNTERS[Lexical.UNICODE]) == 1
    check(["four"], Lexical.UNICODE)
    assert not tokenizer._COUNTERS[Lexical.UNICODE]


@needs_numba
def test_threads_that_count_at_once_have_counters_of_their_own(monkeypatch):
    monkeypatch.setitem(tokenizer._COUNTERS, Lexical.UNICODE, [])
    texts = [[f"w{number % (7 + part)} common {number}" for number in range(4000)] for part in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda own: tokenize_compiled(own, Lexical.UNICODE), texts))
    for own, tokens in zip(texts, found, strict=True):
        check_alike(tokens, tokenize_plainly(own, Lexical.UNICODE))


def test_a_few_texts_load_no_loops(monkeypatch):
    monkeypatch.setattr(kernels, "_is_expecting", False)
    monkeypatch.setattr(kernels, "_elements_so_far", 0)
    monkeypatch.setattr(tokenizer, "LOADING", Loading())
    monkeypatch.delitem(sys.modules, "mvindex.kernels.compiled", raising=False)
    for _ in range(1000):
        tokenizer.tokenize(["words of a query"], Lexical.UNICODE)
    assert not tokenizer.pays_to_compile(500_000, tokenizer._load_loops) and not tokenizer.LOADING.has_loaded
