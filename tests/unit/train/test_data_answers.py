"""Where an answer stands: worked by hand, and against a slow plain reading of the rule."""

import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from mvindex.measure.metrics import has_answer, tokenize
from mvindex.records import Document
from mvindex_train.data.options import ReadCount, ReadReport
from mvindex_train.data.read import LocateStatus, add_answer_span, locate_answer
from mvindex_train.data.records import Example


@pytest.mark.parametrize(
    ("text", "answers", "found"),
    [
        ("It was built in 1889.", ["1889"], "1889"),
        ("The EIFFEL  Tower, Paris", ["eiffel tower"], "EIFFEL  Tower"),
        ("a U.S. law", ["U.S."], "U.S."),
        ("a U. S . law", ["u.s."], "U. S ."),
        ("caf\u00e9 noir", ["cafe\u0301"], "caf\u00e9"),
        ("cafe\u0301 noir", ["CAF\u00c9"], "cafe\u0301"),
        ("the \ud55c\uad6d fair", ["\ud55c\uad6d"], "\ud55c\uad6d"),
        ("is 2 \u2260 3 so", ["\u2260 3"], "\u2260 3"),
        ("is 2 \u2260 3 so", ["="], "\u2260"),
        ("\u039f\u0394\u039f\u03a3 \u03b1", ["\u03bf\u03b4\u03bf\u03c2"], "\u039f\u0394\u039f\u03a3"),
        ("\U0001f600 yes \U0001f600\U0001f601", ["\U0001f600\U0001f601"], "\U0001f600\U0001f601"),
        ("see the Eiffel Tower here", ["Eiffel Tower", "the Eiffel Tower"], "Eiffel Tower"),
        ("see the Eiffel Tower here", ["the Eiffel Tower", "Eiffel Tower"], "the Eiffel Tower"),
        ("see Rome now", ["Paris", "Rome"], "Rome"),
        ("no no no", ["no no no"], "no no no"),
        ("a a a b", ["a a"], "a a"),
    ],
)
def test_the_answer_is_found_where_it_stands(text, answers, found):
    located = locate_answer(text, answers)
    assert located.status is LocateStatus.FOUND
    assert text[slice(*located.span)] == found
    assert located.span[0] == text.index(found)


@pytest.mark.parametrize(
    ("text", "answers", "reason"),
    [
        ("Rome", [], LocateStatus.NO_ANSWERS),
        ("Rome", ["Paris"], LocateStatus.UNFINDABLE),
        ("Romeo", ["Rome"], LocateStatus.UNFINDABLE),
        ("Rome", [" "], LocateStatus.UNFINDABLE),
        ("", ["Rome"], LocateStatus.UNFINDABLE),
        ("Rome, then Rome", ["rome"], LocateStatus.AMBIGUOUS),
        ("Rome and Paris", ["Rome", "Paris"], LocateStatus.AMBIGUOUS),
        ("no no", ["no"], LocateStatus.AMBIGUOUS),
    ],
)
def test_an_answer_at_no_place_or_several_has_no_span(text, answers, reason):
    located = locate_answer(text, answers)
    assert (located.span, located.status) == (None, reason)


@pytest.mark.parametrize(
    ("answers", "span", "count"),
    [
        (("Ada",), (0, 3), ReadCount.SPAN_FOUND),
        (("it",), None, ReadCount.SPAN_AMBIGUOUS),
        (("Bob",), None, ReadCount.SPAN_UNFINDABLE),
        ((), None, ReadCount.NO_ANSWERS),
    ],
)
def test_every_answer_is_counted(answers, span, count):
    report = ReadReport()
    example = add_answer_span(
        Example("q", "Who?", (Document("1", "Ada wrote it, it is said."),), answers=answers), report
    )
    assert example.answer_span == span
    assert dict(report.counts) == {count: 1}


def test_a_given_place_wins_over_a_search():
    report = ReadReport()
    example = Example("q", "Who?", (Document("1", "it was it"),), answers=("it",), answer_span=(7, 9))
    assert add_answer_span(example, report).answer_span == (7, 9)
    assert report.lines() == ["1 answers with a given span"]


# Letters that compose and decompose, marks that change places, expansions in lower case, and what parts tokens.
ALPHABET = "aAb \u00e9e\u0301\u0323\u1ecd\u03a3\u03c3\u0130\u2260=.\u200b\n\ud55c\u00df\U0001f600"
texts = st.text(ALPHABET, max_size=14)


def slow_tokens(text):
    """(token in lower case, first character, last character): one decomposed character at a time."""
    chars = []
    for place, char in enumerate(text):
        for part in unicodedata.normalize("NFD", char):
            at = len(chars)
            # Canonical order: a mark moves before the marks of a higher class, never before a letter.
            while at and 0 < unicodedata.combining(part) < unicodedata.combining(chars[at - 1][0]):
                at -= 1
            chars.insert(at, (part, place))
    tokens, open_run = [], False
    for part, place in chars:
        is_word = bool(regex.fullmatch(r"[\p{L}\p{N}\p{M}]", part))
        if regex.fullmatch(r"[\p{Z}\p{C}]", part):
            open_run = False
            continue
        if is_word and open_run:
            tokens[-1][0].append(part)
            tokens[-1][1].append(place)
        else:
            tokens.append(([part], [place]))
        open_run = is_word
    return [("".join(parts).lower(), min(places), max(places)) for parts, places in tokens]


def slow_locate(text, answers):
    tokens, matches = slow_tokens(text), []
    for answer in answers:
        wanted = [token for token, _, _ in slow_tokens(answer)]
        for begin in range(len(tokens) - len(wanted) + 1):
            run = tokens[begin : begin + len(wanted)]
            if wanted and [token for token, _, _ in run] == wanted:
                matches.append((run[0][1], run[-1][2] + 1))
    covered = {place for begin, end in matches for place in range(begin, end)}
    # One place: every match is joined to every other by a chain of matches that share a character.
    groups = [{matches[0]}] if matches else []
    for match in matches[1:]:
        near = [g for g in groups if any(match[0] < other[1] and other[0] < match[1] for other in g)]
        groups = [g for g in groups if g not in near] + [set().union({match}, *near)]
    assert bool(covered) == bool(matches)
    return matches[0] if len(groups) == 1 else None, len(groups)


@given(texts, st.lists(st.text(ALPHABET, max_size=4), min_size=1, max_size=2))
def test_locate_agrees_with_the_slow_rule(text, answers):
    span, num_places = slow_locate(text, answers)
    reason = [LocateStatus.UNFINDABLE, LocateStatus.FOUND][num_places] if num_places < 2 else LocateStatus.AMBIGUOUS
    located = locate_answer(text, answers)
    assert (located.span, located.status) == (span, reason)


@given(texts, st.data())
def test_locate_finds_what_answer_accuracy_counts(text, data):
    begin = data.draw(st.integers(0, len(text)))
    answer = text[begin : data.draw(st.integers(begin, len(text)))]
    assert (locate_answer(text, [answer]).status is LocateStatus.UNFINDABLE) != has_answer(
        tokenize(text), [tokenize(answer)]
    )
