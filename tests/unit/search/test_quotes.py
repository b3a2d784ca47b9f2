"""Several citations of one text: distinct, best first, below headings, of tables, and within a size."""

import csv
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from mvindex.corpus.text.citation import Citer, Quoting, about_tokens, quotes
from mvindex.encoder.checkpoint.hub import DEFAULT, LIGHT_FORMS, packaged_folder
from tests.helpers.cli import PASSAGES

TABLE = "| name | size |\n| --- | --- |\n| oil | 12 |\n| gas | 14 |\n| coal | 12 |"
MARKDOWN = "# How much oil?\n\nOil was 12 dollars. It had been 3.\n\n# Other things\n\nGas was cheap. Nobody cared."


def texts_of(question, text, **options):
    return [each.text for each in quotes(Citer(question), text, "", None, Quoting(**options))]


def test_the_first_is_the_one_citation_and_scores_fall_behind_it():
    text = "Oil rose in 1973. Rain fell. Oil fell in 1986. Nobody knew. Oil was oil."
    found = quotes(Citer("when did oil rise"), text, "", None, Quoting(4))
    assert found[0] == Citer("when did oil rise").cite(text)
    scores = [each.score for each in found]
    assert scores[1:] == sorted(scores[1:], reverse=True) and len(found) == 4
    assert all(text[each.start : each.end] == each.text for each in found)


def test_a_heading_is_cited_by_what_stands_below_it_once():
    found = texts_of("how much oil", MARKDOWN, count=9)
    assert found[0] == "Oil was 12 dollars." and not any("#" in each for each in found)
    assert sorted(found) == ["Gas was cheap.", "It had been 3.", "Nobody cared.", "Oil was 12 dollars."]


def test_rows_of_a_table_have_the_names_of_their_columns():
    found = texts_of("size of oil", TABLE, count=2)
    assert found[0] == Citer("size of oil").cite(TABLE).text and "name: " in found[0] and "name: " in found[1]
    assert "oil" in found[0]


@pytest.mark.parametrize("text", ["", "...", "\n\n"])
def test_a_text_without_letters_has_none(text):
    assert texts_of("oil", text, count=3) == []


def test_context_is_cut_between_sentences():
    text = "One is here. Two is there. Three has oil. Four is far. Five is near."
    for size, expected in (
        (1000, "One is here. Two is there. Three has oil. Four is far. Five is near."),
        (50, "Two is there. Three has oil. Four is far."),
        (28, "Two is there. Three has oil."),
        (16, "Three has oil."),
    ):
        [one] = quotes(Citer("oil"), text, "", None, Quoting(1, 2, size))
        assert f"{one.before}{one.text}{one.after}" == expected
    assert texts_of("oil", text, max_chars=5) == []
    assert texts_of("three oil", f"{text} Oil.", count=9, max_chars=10) == ["Oil."]


def test_tokens_are_counted_rather_too_high():
    texts = (
        "",
        " \n",
        "oil",
        "embargo",
        "$12,000.50",
        "Öl",
        "石油",
        "12 34 56",
        "1\t2\t3",
        "a\n  b\n",
        "| 1.2 | 3.4 |",
    )
    assert [about_tokens(text) for text in texts] == [0, 1, 1, 2, 6, 2, 4, 5, 5, 5, 11]
    form = packaged_folder(LIGHT_FORMS[DEFAULT]) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(form))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with PASSAGES.open(encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file, delimiter="\t")]
    own = np.array([about_tokens(text) for text in texts])
    others = np.array([len(each.ids) for each in tokenizer.encode_batch(texts, add_special_tokens=False)])
    assert 1.4 < own.sum() / others.sum() < 1.45 and 0.97 < (own / others).min() and (own / others).max() < 1.9


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(["Oil rose.", "Rain fell in May.", "# Head", "- an item", "a: b; c: d", "\n\n", "12"])),
    st.integers(1, 6),
    st.integers(0, 3),
    st.none() | st.integers(1, 80),
    st.none() | st.integers(1, 30),
)
def test_citations_do_not_overlap_and_fit(parts, count, context, max_chars, max_tokens):
    text = "\n".join(parts)
    found = quotes(Citer("when did oil rise"), text, "", None, Quoting(count, context, max_chars, max_tokens))
    assert len(found) <= count and len({each.text for each in found}) == len(found)
    spans = sorted((each.start, each.end) for each in found)
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))
    for each in found:
        assert text[each.start : each.end] == each.text
        assert text[each.start - len(each.before) : each.start] == each.before
        assert text[each.end : each.end + len(each.after)] == each.after
    if max_chars is not None:
        assert sum(len(each.before + each.text + each.after) for each in found) <= max_chars
    if max_tokens is not None:
        assert sum(about_tokens(each.before + each.text + each.after) for each in found) <= max_tokens
    if max_chars is None and max_tokens is None and Citer("when did oil rise").cite(text) is not None:
        assert found[0].text == Citer("when did oil rise").cite(text).text


WORDS = st.lists(st.sampled_from("zebra valve oil steel room of the".split()), min_size=1, max_size=6).map(" ".join)
PARTS = st.tuples(st.sampled_from(["# ", "- ", "", "| "]), WORDS, st.sampled_from([".", ":", "", "?"]))


@given(st.lists(PARTS, min_size=1, max_size=10), st.sampled_from(["\n", "\n\n"]), WORDS)
def test_quotes_do_not_overlap_and_fall_in_score_behind_the_first(parts, gap, question):
    text, citer = gap.join(f"{before}{words.capitalize()}{after}" for before, words, after in parts), Citer(question)
    quoted = quotes(citer, text, "", None, Quoting(count=50))
    assert quoted[0].text == citer.cite(text).text
    assert all(text[each.start : each.end] == each.text for each in quoted)
    places = sorted((each.start, each.end) for each in quoted)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    scores = [each.score for each in quoted[1:]]
    assert all(after <= before + 1e-9 for before, after in pairwise(scores))


def test_quotes_of_a_text_of_many_parts_take_a_time_in_proportion():
    def seconds(count):
        text = "".join(f"It rained {number} days. " for number in range(count))
        began = time.process_time()
        quotes(Citer("how many days?"), text, "", None, Quoting(count=2, max_chars=5))
        return time.process_time() - began

    seconds(100)
    assert min(seconds(8_000) for _ in range(3)) < 3 * 4 * max(min(seconds(2_000) for _ in range(3)), 0.01)
