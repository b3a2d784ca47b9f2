"""Texts are split as FTS5 splits them whole."""

import sqlite3
from collections import Counter
from contextlib import closing

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.lexical import tokenizer
from mvindex.lexical.tokenizer import _TOKENIZERS, Lexical, tokenize
from mvindex.text.unspaced import split_unspaced

# Letters, separators, accents, other scripts: what decides where terms begin and end.
TEXTS = st.text(
    st.sampled_from("abCE19 ._-\0\t'\x1f\x80\xa0éÉß\u0301\u0300\u2019\u2028İσς石油ก\ue000\U0001f600"), max_size=40
)


def split_whole(texts, lexical):
    """Return for each text how often it has each term's hash, by one FTS5 table of the whole texts."""
    found = [Counter() for _ in texts]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE t USING fts5(text, tokenize='{_TOKENIZERS[lexical]}')")
        connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(t, instance)")
        connection.text_factory = bytes
        split = map(split_unspaced, texts) if lexical is Lexical.BIGRAMS else texts
        connection.executemany("INSERT INTO t(rowid, text) VALUES (?, ?)", enumerate(split))
        for term, number in connection.execute("SELECT term, doc FROM terms WHERE term IS NOT NULL"):
            found[number][xxhash.xxh3_64_intdigest(term)] += 1
    return found


def check(texts, lexical):
    tokens = tokenize(texts, lexical)
    found = [Counter() for _ in texts]
    for hashed, begin, end in zip(tokens.hashes.tolist(), tokens.starts[:-1], tokens.starts[1:], strict=True):
        assert end > begin
        for text, times in zip(tokens.texts[begin:end].tolist(), tokens.counts[begin:end].tolist(), strict=True):
            assert hashed not in found[text]
            found[text][hashed] = times
    assert found == split_whole(texts, lexical)
    assert tokens.lengths.tolist() == [sum(own.values()) for own in found]
    assert tokens.hashes.tolist() == sorted(tokens.hashes.tolist())


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
