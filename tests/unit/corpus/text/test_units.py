"""The citable parts of a text: sentences, lines of lists and tables, windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.corpus.text.units import LONGEST_CHARS, split_units


def parts(text):
    return [text[begin:end] for begin, end in split_units(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It began in 1973. It ended in 1974!", ["It began in 1973.", "It ended in 1974!"]),
        ("Dr. A. Smith et al. found it. Etc. it was.", ["Dr. A. Smith et al. found it.", "Etc. it was."]),
        (
            "It cost 3.5 dollars. (See below.) \u201cYes.\u201d No.",
            ["It cost 3.5 dollars.", "(See below.)", "\u201cYes.\u201d", "No."],
        ),
        ("It rose.[3] It fell.[citation needed] And rose.", ["It rose.[3]", "It fell.[citation needed]", "And rose."]),
        ("- one\n- two\n1. three\n", ["- one", "- two", "1. three"]),
        ("Name\tAge\nBob\t3\nAnn\t4", ["Name\tAge", "Bob\t3", "Ann\t4"]),
        ("A Title\n\nfirst line", ["A Title", "first line"]),
        ("A Title\nThe text.", ["A Title", "The text."]),
        (
            "a line of more than fifty characters that was wrapped\nGoes on here. Then more.",
            ["a line of more than fifty characters that was wrapped\nGoes on here.", "Then more."],
        ),
        ("short\nbut going on", ["short\nbut going on"]),
        ("石油危机始于1973年。它很严重！", ["石油危机始于1973年。", "它很严重！"]),
        ("name | age\nann | 3\nbob | 4", ["name | age", "ann | 3", "bob | 4"]),
        ("", []),
        (" \n . ?", []),
    ],
)
def test_a_text_is_cut_where_a_reader_would_cut_it(text, expected):
    assert parts(text) == expected


def test_a_long_part_is_cut_between_clauses_then_words_then_anywhere():
    clauses = "one two three, " * 100
    assert all(part.endswith("three,") for part in parts(clauses)[:-1])
    assert all(part.split()[0] == "word" for part in parts("word " * 300))
    for text in (clauses, "word " * 300, "x" * 2000):
        assert "".join(parts(text)).replace(" ", "") == text.replace(" ", "")
        assert max(map(len, parts(text))) <= LONGEST_CHARS


@given(st.text(alphabet="aB1. !\n\t-,;é。\u201d", max_size=1500))
def test_parts_are_in_order_apart_bare_and_hold_every_letter(text):
    units = split_units(text)
    flat = [position for unit in units for position in unit]
    assert flat == sorted(flat) and all(0 < end - begin <= LONGEST_CHARS for begin, end in units)
    assert all(part == part.strip() for part in parts(text))
    assert [char for part in parts(text) for char in part if char.isalnum()] == [
        char for char in text if char.isalnum()
    ]


def test_a_row_of_a_table_is_one_part_or_several_of_whole_cells():
    row = "part: PX-1037; maker: Orbitex. Inc; price (EUR): 5.30; note: Fragile; heavy. Handle with care"
    assert parts(row) == [row]
    cells = [f"column {n}: A value. Of two sentences" for n in range(20)]
    found = parts("; ".join(cells))
    assert [cell for part in found for cell in part.rstrip(";").split("; ")] == cells
    assert len(found) == 3 and max(map(len, found)) <= 300


def test_a_cell_that_is_longer_than_a_part_is_cut_between_sentences():
    found = parts("name: Bob; story: " + "It was so. " * 80 + "; age: 3")
    assert found[0] == "name: Bob;" and found[-1] == "age: 3" and found[2] == "It was so."


def test_a_sentence_with_colons_is_no_row():
    text = "The Normans (Norman: Nourmands; French: Normands; Latin: Normanni) were people. They came."
    assert parts(text) == [
        "The Normans (Norman: Nourmands; French: Normands; Latin: Normanni) were people.",
        "They came.",
    ]
