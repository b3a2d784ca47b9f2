import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.corpus.text import parts as parts_of
from mvindex.corpus.text.parts import Splitter, parse_splitter, split_parts
from mvindex.corpus.text.sentences import merge_sentences, split_sentences
from mvindex.errors import ConfigError
from mvindex.records import has_visible

PIECES = ["It rains. ", "a, ", "b; ", "\n", "\n\n- ", "\t", "| ", "|---|\n", "def f(x):\n", "    return x\n", "、日本",
          "。", "\u200b", "\u0301", "word " * 30, "x" * 400, " and ", "1,000 ", "Mr. ", "(a, b) ", " "]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
LIKED = ["Quokkas", "River Otters", "Tapirs", "Asymmetry", "Snow Leopards", "Limes", "Mosaic", "Cobras"]


def shown(text):
    return [text[begin:end] for begin, end in split_parts(text)]


CASES = {
    "plain sentences": ("It rains, and it pours. We go home.", ["It rains, and it pours.", "We go home."]),
    "a list of things": (
        f"Ann likes {', '.join(LIKED)} and Elm Trees.",
        ["Ann likes Quokkas,", *(f"{one}," for one in LIKED[1:-1]), "Cobras", "and Elm Trees."],
    ),
    "a list without spaces": ("喜欢：苹果、香蕉、葡萄、西瓜、桃子、李子、樱桃、草莓", 8),
    "bullet points": ("Tools:\n- a hammer\n- a saw\n- nails", ["Tools:", "- a hammer", "- a saw", "- nails"]),
    "a table": ("name | age\n---|---\nAnn | 3\nBob | 4", ["name | age\n---|---", "Ann | 3", "Bob | 4"]),
    "tab-separated rows": ("name\tage\nann\t3\nbob\t4", ["name\tage", "ann\t3", "bob\t4"]),
    "wrapped prose stays whole": (
        "This sentence was wrapped by an editor after seventy characters,\nand it goes on.",
        ["This sentence was wrapped by an editor after seventy characters,\nand it goes on."],
    ),
    "numbers keep their commas": ("It has 1,000,000,000,000,000,000,000,000,000 people.", 1),
    "nothing to see": (" \n\t\u200b", []),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_a_text_is_cut_between_its_facts(text, expected):
    found = shown(text)
    assert (len(found) if isinstance(expected, int) else found) == expected


@pytest.mark.parametrize(
    ("unit", "count"), [("word ", 300), ("x", 2000), ("a clause of it; ", 80), ("日本語", 400)], ids=repr
)
def test_what_is_long_falls_into_parts_of_about_one_length(unit, count):
    lengths = [end - begin for begin, end in split_parts(unit * count)]
    assert max(lengths) <= parts_of.LONGEST_CHARS and min(lengths) >= max(lengths) / 3
    assert len(lengths) >= len(unit) * count / parts_of.LONGEST_CHARS


def test_a_long_sentence_is_cut_at_a_clause():
    first = "The committee that had been appointed in the spring " * 4 + "met every week;"
    second = "nothing that it wrote was ever read by those " * 5 + "who had asked."
    assert shown(f"{first} {second}") == [first, second]


def test_n_facts_have_n_views_up_to_k():
    text = f"Ann likes {', '.join(LIKED)} and Elm Trees."
    assert [len(merge_sentences(split_parts(text), k)) for k in (1, 4, 8, 9, 64)] == [1, 4, 8, 9, 9]


@given(texts)
def test_parts_are_in_order_apart_and_hold_every_visible_character(text):
    spans = split_parts(text)
    borders = [0, *itertools.chain.from_iterable(spans), len(text)]
    assert borders == sorted(borders)
    assert all(begin < end and text[begin:end] == text[begin:end].strip() for begin, end in spans)
    between = zip(borders[::2], borders[1::2], strict=True)
    assert not any(has_visible(text[begin:end]) for begin, end in between)
    assert bool(spans) == has_visible(text)


@given(texts)
def test_no_part_crosses_a_sentence(text):
    begins = [begin for begin, _ in split_parts(text)]
    assert sum(any(first <= begin < last for begin in begins) for first, last in split_sentences(text)) <= len(begins)


@pytest.mark.parametrize(
    "text", ["word " * 100_000, "a" * 500_000, "a, " * 100_000, "- x\n" * 50_000, "a " * 9 + "\n" * 99_999]
)
def test_a_huge_text_takes_seconds_not_minutes(text):
    started = time.process_time()
    assert split_parts(text)
    assert time.process_time() - started < 20


def test_a_splitter_is_found_by_its_name():
    assert [parse_splitter(each.value) for each in Splitter] == list(Splitter)
    with pytest.raises(ConfigError, match="expected 'sentences-1' or 'sentences-2' or 'parts-1', got 'parts-9'"):
        parse_splitter("parts-9")
