"""Find the sentence starts of an English text as NLTK's Punkt does, with its trained parameters and without NLTK.

A candidate is a full stop, question or exclamation mark before whitespace or punctuation. Whether it ends a sentence is
decided on the word before and the token after it (Kiss and Strunk 2006, section 4). The rules are those of
nltk.tokenize.punkt 3.10 (Apache License 2.0); most candidates follow a plain word, and need few of them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.resources
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

# Characters that cannot be inside a word, beside white space.
_NON_WORD = r"[)\";}\]*:@'({\[\u2018\u2019\u201c\u201d\xab\xbb?!]"
_RUN = r"(?:-{2,}|\.{2,}|(?:\.\s){2,}\.)"
_CANDIDATE = re.compile(rf"[.?!](?=({_NON_WORD}|\s+(\S+)))")
_TOKEN = re.compile(
    rf"({_RUN}"
    r"|(?=[^(\"`{\[:;&#*@)}\]\-,])\S+?"
    rf"(?=\s|$|{_NON_WORD}|{_RUN}|,(?=$|\s|{_NON_WORD}|{_RUN}))"
    r"|\S)"
)
# Closing marks that belong to the sentence before.
_CLOSERS = "\"')]}\u2018\u2019\u201c\u201d\xab\xbb"
_CLOSING = re.compile(rf"[{re.escape(_CLOSERS)}]+?(?:\s+|(?=--)|$)", re.MULTILINE)
_NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*$")
_ELLIPSIS = re.compile(r"\.\.+$")
_NUMBER_TYPE = "##number##"
# Everything up to the whitespace before the last word.
_BEFORE_WORD = re.compile(r"(?:.*[ \n\t\r\x0b\x0c])?", re.DOTALL)
_ENDS = (".", "?", "!")
_PUNCTUATION = frozenset(";:,.!?")
# Where a word was seen in training: flags of ortho_context.tab.
_MIDDLE_UPPER, _UPPER, _FIRST_LOWER, _LOWER = 1 << 2, 0b1110, 1 << 4, 0b1110000
# Decisions that are kept, and the longest context of one: a text of nothing but sentence ends repeats a few.
_KEPT_CONTEXTS, _KEPT_CHARS = 1 << 12, 64


class _Parameters(NamedTuple):
    """Learned parameters: abbreviations without their full stop, pairs of types, and where each type was seen."""

    abbreviations: frozenset[str]
    starters: frozenset[str]
    collocations: frozenset[tuple[str, ...]]
    collocation_starts: frozenset[str]
    seen: dict[str, int]


def sentence_starts(text: str) -> list[int]:
    """Return where each sentence begins, in order; the first one's start is where the text's is."""
    starts: list[int] = []
    shift = 0
    sentences = _sentences(text)
    begin, end = next(sentences)
    for next_begin, next_end in sentences:
        first = begin + shift
        is_closed = next_begin < next_end and text[next_begin] in _CLOSERS
        closing = _CLOSING.match(text, next_begin, next_end) if is_closed else None
        shift = closing.end() - next_begin if closing else 0
        if closing or first < end:
            starts.append(first)
        begin, end = next_begin, next_end
    if begin + shift < end:
        starts.append(begin + shift)
    return starts


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges between the marks that end sentences."""
    begin = 0
    for start, mark in _candidates(text):
        if _ends_sentence(text, start, mark):
            end = mark.end()
            yield begin, end
            begin = end if mark[2] is None else mark.start(2)
    yield begin, len(text.rstrip())


def _candidates(text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield each candidate with the start of the word before it; of those within one word the last."""
    start = stop = 0
    last: re.Match[str] | None = None
    for mark in _CANDIDATE.finditer(text):
        end = mark.start()
        before = _BEFORE_WORD.match(text, stop, end)
        begin = start if before is None or before.end() <= stop + 1 else before.end()
        if last is not None and stop <= begin:
            yield start, last
        start, stop, last = begin, end, mark
    if last is not None:
        yield start, last


def _ends_sentence(text: str, start: int, mark: re.Match[str]) -> bool:
    """Return whether the candidate, whose word begins at start, ends a sentence."""
    end = mark.start()
    word = text[start:end]
    # Most words have only letters. What they end, ends a sentence, unless an abbreviation or a pair is known.
    if mark[2] is not None and word.isalpha() and word.isascii() and len(word) > 1:
        if mark[0] != ".":
            return True
        kind, known = word.lower(), _parameters()
        if kind not in known.abbreviations and kind not in known.collocation_starts:
            return True
    context = text[start : mark.end(1)]
    return _decided(context) if len(context) <= _KEPT_CHARS else _decide(context)


def _decide(context: str) -> bool:
    """Return whether a token of the context that is not its last one ends a sentence."""
    before: str | None = None
    for line in context.split("\n"):
        for found in _TOKEN.finditer(line):
            token = found[0]
            if before is not None and before.endswith(_ENDS) and _breaks(before, token):
                return True
            before = token
    return False


_decided = functools.lru_cache(_KEPT_CONTEXTS)(_decide)


def _breaks(token: str, following: str) -> bool:
    """Return whether a sentence ends between the two tokens (Kiss and Strunk, section 4)."""
    breaks, is_odd = _first_guess(token)
    if not token.endswith("."):
        return breaks
    known = _parameters()
    kind = _type_without_period(token)
    is_initial = _is_initial(token)
    next_kind = _type_without_period(following) if _first_guess(following)[0] else _type(following)
    if (kind, next_kind) in known.collocations:
        return False
    seen = known.seen.get(next_kind, 0)
    starts = _starts_sentence(following, seen)
    if is_odd and not is_initial:
        if starts is True or (following[0].isupper() and next_kind in known.starters):
            return True
    if is_initial or kind == _NUMBER_TYPE:
        if starts is False:
            return False
        if starts is None and is_initial and following[0].isupper() and not seen & _LOWER:
            return False
    return breaks


def _is_initial(token: str) -> bool:
    """Return whether the token is a letter and a full stop."""
    return len(token) == 2 and token[1] == "." and _letter().match(token) is not None


@functools.cache
def _letter() -> Any:
    # NLTK matches it with the package regex, whose letters include combining marks. Imported late: it takes 40 ms.
    regex = importlib.import_module("regex")
    return regex.compile(r"[^\W\d]")


def _first_guess(token: str) -> tuple[bool, bool]:
    """Return whether the token ends a sentence by itself, and whether it is an abbreviation or an ellipsis."""
    if token in _ENDS:
        return True, False
    if _ELLIPSIS.match(token):
        return False, True
    if token[-1] != "." or token.endswith(".."):
        return False, False
    word, known = token[:-1].lower(), _parameters().abbreviations
    is_known = word in known or word.rpartition("-")[2] in known
    return not is_known, is_known


def _starts_sentence(token: str, seen: int) -> bool | None:
    """Return whether the token's case says that it begins a sentence, or does not; None where that is unknown."""
    if token in _PUNCTUATION:
        return False
    if token[0].isupper() and seen & _LOWER and not seen & _MIDDLE_UPPER:
        return True
    if token[0].islower() and (seen & _UPPER or not seen & _FIRST_LOWER):
        return False
    return None


def _type(token: str) -> str:
    kind = token.lower()
    return _NUMBER_TYPE if _NUMBER.match(kind) else kind


def _type_without_period(token: str) -> str:
    kind = _type(token)
    return kind[:-1] if len(kind) > 1 and kind[-1] == "." else kind


@functools.cache
def _parameters() -> _Parameters:
    collocations = frozenset(tuple(line.split("\t")) for line in _lines("collocations.tab"))
    contexts = (line.split("\t") for line in _lines("ortho_context.tab"))
    return _Parameters(
        frozenset(_lines("abbrev_types.txt")),
        frozenset(_lines("sent_starters.txt")),
        collocations,
        frozenset(pair[0] for pair in collocations),
        {word: int(flags) for word, flags in contexts},
    )


def _lines(name: str) -> list[str]:
    folder = importlib.resources.files("mvindex") / "data" / "punkt_tab" / "english"
    return (folder / name).read_text(encoding="utf-8").rstrip("\n").split("\n")
