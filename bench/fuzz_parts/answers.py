"""Answers in texts: by words against a loop over tokens, by patterns against Python's own re where both know them."""

import re
import unicodedata
import warnings
from pathlib import Path

import regex

from fuzz_parts.target import Limits, require
from mvindex.errors import QueryError
from mvindex.measure.metrics import AnswerMatcher

_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
# What the two engines read differently, so that nothing can be said (sets in sets, possessive and fuzzy matching, ...),
# and groups, on which Python's own may run for ever.
_OF_ONE_ENGINE = regex.compile(r"[^\x00-\x7f]|\[\[|[{(]|\\[^\\dDsSwW.]|[*+?}][+*?]|&&|--|\|\||~~|\^|\$")

# Written out when they are compiled, at a kilobyte each: the length of the pattern does not bound them.
_COUNTS = regex.compile(r"\{[^}]*\d{3}")


def open_target(name: str, folder: Path):
    return Answers()


class Answers(Limits):
    """One answer and one text, parted by a tab; a zero byte before them: the answer is a pattern."""

    name = "answers"
    refusals = (QueryError,)
    extra_mib = 256
    seconds = 30.0
    tokens = (b"\t", b"\0", b" ", b".", b"*", b"+", b"?", b"(", b")", b"[", b"]", b"{2,3}", b"{99}", b"\\", b"\\d",
              b"\\p{L}", b"(?i)", b"(?<=a)", b"(a+)+", b"(?R)", b"\\1", b"\xc3\xa9", b"e\xcc\x81", b"\xef\xac\x81",
              b"{e<=3}", b"(?:a{9}){9}", b"\xce\xa3", b"\xc4\xb0", b"[[:alpha:]]", b"\\N{", b"\\x")  # fmt: skip

    def seeds(self) -> list[bytes]:
        return [
            b"The Cat\tA the  cat, sat.", b"U.S.\tin the U. S. today", b"\xc3\xa9t\xc3\xa9\tl'e\xcc\x81te\xcc\x81",
            b"\0c[aeiou]t\tthe cat", b"\0(a+)+b\taaaaaaaaaaaaaaaaaaac", b"\0\\d{4}\tin 1990", b"\0^a.*b$\tab\nb",
        ]  # fmt: skip

    def check(self, data: bytes) -> None:
        is_pattern = data[:1] == b"\0"
        answer, _, text = data[is_pattern:].decode(errors="replace").partition("\t")
        if is_pattern and _COUNTS.search(answer):
            return
        holds = AnswerMatcher(patterns=is_pattern).prepare("q", [answer])(text)
        if not is_pattern:
            require(holds == _has_run(_tokens(text), _tokens(answer)), answer, "in", text, "is", holds)
        elif len(data) < 200 and not _OF_ONE_ENGINE.search(answer + text):
            _check_pattern(answer, text, holds)


def _tokens(text: str) -> list[str]:
    return [token.lower() for token in _TOKEN.findall(unicodedata.normalize("NFD", text))]


def _has_run(tokens: list[str], wanted: list[str]) -> bool:
    size = len(wanted)
    return bool(wanted) and any(tokens[begin : begin + size] == wanted for begin in range(len(tokens) - size + 1))


def _check_pattern(answer: str, text: str, holds: bool) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = re.search(answer, text, re.IGNORECASE | re.MULTILINE) is not None
    except re.error:
        return
    require(holds == expected, answer, "in", text, "is", holds)
