import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.corpus.text.sentences import merge_sentences, split_sentences, split_snippets
from mvindex.errors import ConfigError
from mvindex.records import has_visible

# Pieces that cut, nearly cut, or hide: stops, abbreviations, quotes, odd spaces, invisible and combining characters.
PIECES = ["Mr. ", "Dr.", "e.g. ", "It rains. ", "So? ", "No! ", '"Yes." ', "(a.) ", "1. ", "...", ". . . ", "\n\n",
          "\t", "\u200b", "\u0301", "\u2028", "\x1c", "\xa0", "日本。", "’ ", "” ", "a", "B", " "]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


def merged_slowly(spans, limit):
    """CAMVR alg. 1 word for word: the shortest joins its shorter neighbour; the leftmost wins a tie."""
    spans = list(spans)
    while len(spans) > limit:
        lengths = [end - begin for begin, end in spans]
        at = lengths.index(min(lengths))
        neighbours = [place for place in (at - 1, at + 1) if 0 <= place < len(spans)]
        other = min(neighbours, key=lambda place: lengths[place])
        first = min(at, other)
        spans[first : first + 2] = [(spans[first][0], spans[first + 1][1])]
    return spans


def parts(text, spans):
    return [text[begin:end] for begin, end in spans]


def test_sentences_are_cut_where_punkt_cuts():
    text = 'Dr. Smith met Mr. Jones on Jan. 5. They talked. "It works." Then they left! Why? Nobody knows'
    assert parts(text, split_sentences(text)) == [
        "Dr. Smith met Mr. Jones on Jan. 5.", "They talked.", '"It works."', "Then they left!", "Why?", "Nobody knows",
    ]  # fmt: skip


def test_outer_whitespace_belongs_to_no_sentence():
    assert split_sentences("  One.\n\n Two. \t") == [(2, 6), (9, 13)]


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b", "\u200b \ufeff"])
def test_a_text_that_shows_nothing_has_no_snippet(text):
    assert split_snippets(text, 8) == []


@given(texts, st.integers(1, 9))
def test_snippets_are_in_order_apart_and_hold_every_visible_character(text, limit):
    spans = split_snippets(text, limit)
    assert len(spans) <= limit
    borders = [0, *itertools.chain.from_iterable(spans), len(text)]
    assert borders == sorted(borders)
    assert all(has_visible(text[begin:end]) for begin, end in spans)
    between = zip(borders[::2], borders[1::2], strict=True)
    assert not any(has_visible(text[begin:end]) for begin, end in between)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), max_size=30), st.integers(1, 10))
def test_merging_follows_the_algorithm_word_for_word(lengths_and_gaps, limit):
    begins = list(itertools.accumulate((length + gap for length, gap in lengths_and_gaps), initial=0))
    spans = [(begin, begin + length) for begin, (length, _) in zip(begins, lengths_and_gaps, strict=False)]
    assert merge_sentences(spans, limit) == merged_slowly(spans, limit)


def test_the_shortest_sentence_joins_its_shorter_neighbour():
    # Lengths 5, 2, 4, 9: the 2 joins the 4 to its right (7 with the gap between them), then the 5 joins that.
    spans = [(0, 5), (6, 8), (9, 13), (14, 23)]
    assert merge_sentences(spans, 3) == [(0, 5), (6, 13), (14, 23)]
    assert merge_sentences(spans, 2) == [(0, 13), (14, 23)]
    assert merge_sentences(spans, 1) == [(0, 23)]


def test_of_equal_sentences_the_leftmost_is_merged_and_into_the_left_one():
    assert merge_sentences([(0, 3), (4, 7), (8, 11)], 2) == [(0, 7), (8, 11)]
    assert merge_sentences([(0, 4), (5, 7), (8, 12)], 2) == [(0, 7), (8, 12)]


def test_few_sentences_stay_as_they_are():
    assert merge_sentences([(0, 3), (4, 7)], 2) == [(0, 3), (4, 7)]


def test_no_snippet_at_all_cannot_be_asked_for():
    with pytest.raises(ConfigError, match="expected 1 or more"):
        split_snippets("One. Two.", 0)


@pytest.mark.parametrize(
    ("text", "count"),
    [("word " * 200_000, 1), ("a" * 1_000_000, 1), ("It is. " * 20_000, 8), ("." * 1_000_000, 1)],
    ids=["no-sentence-end", "one-word", "many-sentences", "dots"],
)
def test_a_huge_text_takes_seconds_not_minutes(text, count):
    # A quadratic way would take minutes for any of these.
    started = time.process_time()
    assert len(split_snippets(text, 8)) == count
    assert time.process_time() - started < 8


def test_merging_100_000_sentences_is_fast():
    spans = [(10 * row, 10 * row + 1 + row % 9) for row in range(100_000)]
    started = time.process_time()
    merged = merge_sentences(spans, 8)
    assert (len(merged), merged[0][0], merged[-1][1]) == (8, 0, spans[-1][1])
    assert time.process_time() - started < 20
