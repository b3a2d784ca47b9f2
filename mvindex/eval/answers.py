"""Does a text hold an answer: the rule of DPR's answer accuracy, by words or by patterns."""

from __future__ import annotations

import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NewType

import regex

from mvindex.errors import QueryError

# A text's tokens in lower case, each with a space before and one after the last: " what ' s on ? ". No token holds a
# space, so a run of tokens is a substring, and finding it needs no loop over tokens.
TokenText = NewType("TokenText", str)

# Why not Python's re, which DPR's evaluation uses: it cannot be stopped. They differ at a fraction such as ½, a word
# character to re alone: the pattern `\b5\b` finds 5½ here and not there.
PATTERN_TIMEOUT_S = 5.0
# Texts of a corpus come back for many questions: some 20,000 passages of 100 words are kept, in at most 128 MB.
CACHE_CHARS = 1 << 25

# Runs of letters, numbers and marks; any other character but separators and controls by itself.
TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
ESCAPE = regex.compile(r"\\(.)")


def tokenize(text: str) -> TokenText:
    """The text's tokens after NFD normalisation, in lower case, ready for has_answer.

    They are lower-cased with the spaces between them, so that a final sigma is judged within its own token.
    """
    tokens = TOKEN.findall(unicodedata.normalize("NFD", text))
    return TokenText(" ".join(("", *tokens, "")).lower())


def has_answer(passage: TokenText, answers: Iterable[TokenText]) -> bool:
    """True when an answer's tokens stand in the passage one after the other; an answer without tokens never does."""
    return any(answer in passage for answer in answers if not answer.isspace())


# (?R), (?1), (?+1), (?-1), (?&name), (?P>name); behind an escaped bracket they are text.
_RECURSION = regex.compile(r"(?<!\\)(?:\\\\)*\(\?(?:R\)|[+-]?[0-9]+\)|&|P>)")


class AnswerMatcher:
    """Tells which texts hold an answer, by words, or with patterns=True by regular expressions.

    The texts made ready are kept, the last used CACHE_CHARS characters of them: give it the text alone, not the title.
    Not for several threads at once.
    """

    def __init__(self, patterns: bool = False) -> None:
        self._patterns = patterns
        self._normalize = _Cache(_decompose if patterns else tokenize, CACHE_CHARS)

    def prepare(self, question_id: str, answers: Sequence[str]) -> Callable[[str], bool]:
        """A function that is True for a text with an answer to this question.

        QueryError, which names the question: a pattern is not a regular expression, or runs over PATTERN_TIMEOUT_S.
        """
        if self._patterns:
            compiled = [_compile(answer, question_id) for answer in answers]
            return lambda text: any(_search(pattern, self._normalize(text), question_id) for pattern in compiled)
        tokenized = [tokenize(answer) for answer in answers]
        return lambda text: has_answer(TokenText(self._normalize(text)), tokenized)


def _decompose(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def _compile(answer: str, question_id: str) -> Any:
    # Decomposed, an escaped letter such as \ě would turn into the escape \e and a caron: its escape goes first.
    pattern = ESCAPE.sub(lambda escape: escape[0] if escape[1].isascii() else escape[1], answer)
    try:
        if _RECURSION.search(pattern):
            raise ValueError("a pattern that calls itself or one of its groups takes memory without bound")
        return regex.compile(_decompose(pattern), regex.IGNORECASE | regex.MULTILINE | regex.UNICODE)
    except (regex.error, ValueError, OverflowError, RecursionError) as err:
        raise QueryError(
            f"question {question_id!r}: the answer {answer[:80]!r} is no regular expression: {err}; "
            "answers that are plain strings are matched without the regex option"
        ) from err


def _search(pattern: Any, text: str, question_id: str) -> bool:
    try:
        return pattern.search(text, timeout=PATTERN_TIMEOUT_S) is not None
    except TimeoutError as err:
        raise QueryError(
            f"question {question_id!r}: the pattern {pattern.pattern[:80]!r} took over {PATTERN_TIMEOUT_S} s on one "
            "text; write it without nested repeats"
        ) from err


class _Cache:
    """A function with its latest results, as many as max_chars hold, texts and results together."""

    def __init__(self, function: Callable[[str], str], max_chars: int) -> None:
        self._function, self._max_chars = function, max_chars
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._num_chars = 0

    def __call__(self, text: str) -> str:
        if text in self._kept:
            self._kept.move_to_end(text)
            return self._kept[text]
        result = self._kept[text] = self._function(text)
        self._num_chars += len(text) + len(result)
        while self._num_chars > self._max_chars:
            dropped = self._kept.popitem(last=False)
            self._num_chars -= len(dropped[0]) + len(dropped[1])
        return result
