"""Lines that fit a terminal, in its columns, and styles that follow them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.cli.terminal import CITED, PLAIN, has_colours, shortened, wrapped


def plain(text, width):
    return wrapped([(text, PLAIN)], width, is_coloured=False)


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 80, ["one two three"]),
        ("one two three", 7, ["one two", "three"]),
        ("one two three", 8, ["one two", "three"]),
        ("one two  ", 7, ["one two"]),
        ("     deep", 10, ["     deep"]),
        ("first\nsecond line", 6, ["first", "second", "line"]),
        ("a\n\nb", 5, ["a", "", "b"]),
        ("abcdefgh ij", 3, ["abc", "def", "gh", "ij"]),
        ("x abcdefgh", 4, ["x", "abcd", "efgh"]),
        ("\u4f60\u597d \u4e16\u754c", 4, ["\u4f60\u597d", "\u4e16\u754c"]),  # two columns each
        ("\u4f60\u597d\u4e16", 4, ["\u4f60\u597d", "\u4e16"]),
        ("e\u0301e\u0301 a", 4, ["e\u0301e\u0301 a"]),  # accents take none
        ("a\tb", 3, ["a b"]),
        ("", 5, [""]),
    ],
)
def test_lines_end_between_words(text, width, lines):
    assert plain(text, width).split("\n") == lines


def test_lines_after_the_first_hang_under_it():
    pieces = [("one two three", PLAIN)]
    assert wrapped(pieces, 12, is_coloured=False, lead=" 1. ") == " 1. one two\n    three"
    assert wrapped([("", PLAIN)], 12, is_coloured=False, lead="name  ") == "name  "


@given(st.text("ab \n\u4f60"), st.integers(2, 12))
def test_no_line_is_too_long_and_nothing_but_space_is_lost(text, width):
    lines = plain(text, width).split("\n")
    assert all(len(line) + line.count("\u4f60") <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_style_goes_on_in_the_next_line_and_ends_with_its_piece():
    pieces = [("one ", PLAIN), ("two three", CITED), (" four", PLAIN)]
    assert wrapped(pieces, 8, is_coloured=True) == "one \x1b[1;4;32mtwo\x1b[0m\n\x1b[1;4;32mthree\x1b[0m\nfour"
    assert wrapped(pieces, 8, is_coloured=False) == "one two\nthree\nfour"


@pytest.mark.parametrize(("width", "line"), [(6, "abcdef"), (5, "abcd\u2026")])
def test_a_line_that_is_cut_says_so(width, line):
    assert shortened("abcdef", width, "2", is_coloured=False) == line
    assert shortened("abcdef", width, "2", is_coloured=True) == f"\x1b[2m{line}\x1b[0m"


@pytest.mark.parametrize(
    ("variables", "is_terminal", "expected"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "FORCE_COLOR": "1"}, False, True),
    ],
)
def test_colours_are_for_terminals(monkeypatch, capsys, variables, is_terminal, expected):
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    assert has_colours() is expected
