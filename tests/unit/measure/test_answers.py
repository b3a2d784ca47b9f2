"""Answer matching by words and by patterns."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.errors import QueryError
from mvindex.measure import metrics
from mvindex.measure.metrics import AnswerMatcher, has_answer, tokenize

MIXED = "aA1 .-'½é\u0301\u0345Σσςİßǅ中\u00ad\u200d\t\n"


def slow_tokens(text):
    """The tokens by the rule's own words: a character at a time, each token lower-cased for itself."""
    tokens, in_word = [], False
    for char in unicodedata.normalize("NFD", text):
        kind = unicodedata.category(char)[0]
        if kind in "LNM":
            tokens = [*tokens[:-1], tokens[-1] + char] if in_word else [*tokens, char]
        elif kind not in "ZC":
            tokens.append(char)
        in_word = kind in "LNM"
    return [token.lower() for token in tokens]


def slow_has_answer(text, answer):
    words, run = slow_tokens(text), slow_tokens(answer)
    return bool(run) and any(words[begin : begin + len(run)] == run for begin in range(len(words)))


def matches(text, *found, patterns=False):
    return AnswerMatcher(patterns).prepare("q", found)(text)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It was Denver's third title.", "denver"),
        ("in 1972, on December 14", "december 14"),
        ("cost of $5.00 each", "$5.00"),
        ("the café de Paris", "cafe\u0301"),
        ("the cafe\u0301 de Paris", "CAFÉ"),
        ("a 2010–11 season", "2010–11"),
        ("Saint - Lawrence", "saint-lawrence"),
        ("new\nline", "new line"),
        ("ΟΔΟΣ'Α", "οδος"),
    ],
)
def test_a_run_of_the_texts_tokens_is_an_answer(text, answer):
    assert matches(text, answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("the category", "cat"),
        ("black and cat", "black cat"),
        ("cafe", "café"),
        ("5.00", "500"),
        ("12 monkeys", "2 monkeys"),
        ("anything", ""),
        ("any thing", " "),
        ("any\u00adthing", "\u200b"),
        ("", "a"),
    ],
)
def test_what_is_no_run_of_the_texts_tokens_is_no_answer(text, answer):
    assert not matches(text, answer)


def test_one_of_several_answers_is_enough():
    assert matches("the Broncos won", "Denver", "", "broncos")
    assert not matches("the Broncos won", "Denver", "", "Panthers")


def test_has_answer_compares_prepared_texts():
    assert has_answer(tokenize("the Broncos won"), [tokenize("Denver"), tokenize("Broncos won")])
    assert not has_answer(tokenize("the Broncos won"), [])


# Characters too new for Python's tables may be known to regex, and are left out.
@given(st.text(MIXED) | st.text(st.characters(exclude_categories=["Cn", "Cs"])))
def test_the_tokens_are_those_of_the_rule(text):
    assert tokenize(text) == "".join(f" {token}" for token in slow_tokens(text)) + " "


@given(st.text(MIXED), st.text(MIXED, max_size=4))
def test_an_answer_is_found_where_the_rule_finds_it(text, answer):
    assert matches(text, answer) == slow_has_answer(text, answer)


@given(st.text(MIXED), st.integers(0, 30), st.integers(0, 30))
def test_a_run_cut_out_of_the_texts_tokens_is_found(text, begin, length):
    run = slow_tokens(text)[begin : begin + length]
    assert matches(text, " ".join(run)) == bool(run)


def test_patterns_search_anywhere_in_any_case_and_by_line():
    assert matches("some 6,194 METERS high", r"6,?194[- ]meters?", patterns=True)
    assert matches("one\ntwo", "^two$", patterns=True)
    assert not matches("one two", "^two$", patterns=True)
    assert matches("the CAFE\u0301", "café", patterns=True)


def test_plain_answers_are_no_patterns():
    assert not matches("abc", "a.c")
    assert matches("f(x) is", "F(X)")


@pytest.mark.parametrize("text", ["Sněžka", "SNE\u030cŽKA"])
def test_an_escaped_letter_with_an_accent_is_that_letter(text):
    assert matches(text, r"Sn\ě\žka", patterns=True)
    assert not matches(text, r"Sn\\ěžka", patterns=True)  # an escaped backslash, then the letter


@pytest.mark.parametrize(
    "pattern",
    ["(", "a{2,1}", r"(?P<x>a)(?P=y)", "a{1,99999999999999999999}"]
    + ["(?R)", "a(?R)?b", r"\\\\(?R)", "(a)(?1)", "(?-1)", "(?P<x>a(?&x))", "(?P<x>a(?P>x)?)"],
)
def test_a_bad_pattern_names_question_and_pattern(pattern):
    with pytest.raises(QueryError, match="^question 'q7': answers: expected regular expressions, got "):
        AnswerMatcher(patterns=True).prepare("q7", ["fine", pattern])


def test_what_only_looks_like_a_pattern_that_calls_itself_is_one():
    assert matches("a (R) b", r"\(R\)", patterns=True)
    assert matches("ab", "(?-i:a)b", patterns=True)
    assert matches("x(R)", r"\(?R", patterns=True)


def test_a_pattern_that_runs_away_is_stopped_and_named(monkeypatch):
    monkeypatch.setattr(metrics, "PATTERN_TIMEOUT_S", 0.05)
    holds_answer = AnswerMatcher(patterns=True).prepare("q7", ["(a|a)*$"])
    with pytest.raises(
        QueryError, match="^question 'q7': answers: expected a match within 0.05 s per text, got a timeout"
    ):
        holds_answer("a" * 5000 + "!")


@pytest.fixture
def counted(monkeypatch):
    """The texts that were tokenised, in order."""
    texts = []

    def count(text):
        texts.append(text)
        return tokenize(text)

    monkeypatch.setattr(metrics, "tokenize", count)
    return texts


def test_a_text_seen_for_another_question_is_not_tokenised_again(counted):
    matcher = AnswerMatcher()
    assert matcher.prepare("1", ["b"])("a b")
    assert not matcher.prepare("2", ["c"])("a b")
    assert counted == ["b", "a b", "c"]


def test_the_texts_used_longest_ago_are_dropped_first(counted, monkeypatch):
    monkeypatch.setattr(metrics, "CACHE_CHARS", 12)  # a text of 2 characters and its " xx " make 6: two fit
    holds_answer = AnswerMatcher().prepare("1", ["no"])
    counted.clear()
    for text in ["aa", "bb", "aa", "cc", "aa", "bb", "longer than the cache", "bb"]:
        assert not holds_answer(text)
    assert counted == ["aa", "bb", "cc", "bb", "longer than the cache", "bb"]
