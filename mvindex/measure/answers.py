"""Whether a text holds an answer, by the rule of DPR's answer accuracy: by tokens or by regular expressions."""

from __future__ import annotations

import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NewType

import regex

from mvindex.errors import QueryError

# The lower-case tokens of a text, with a space before each and after the last: " what ' s on ? ". No token holds a
# space, so a sequence of tokens is a substring, and finding it needs no loop over tokens.
TokenText = NewType("TokenText", str)

# DPR's evaluation uses Python's re, which has no timeout; regex has one. They differ at a fraction such as ½, which
# is a word character to re only: the pattern `\b5\b` finds 5½ here and not there.
PATTERN_TIMEOUT_S = 5.0
# The same documents are retrieved for many questions: some 20,000 of 100 words are cached, in at most 128 MB.
CACHE_CHARS = 1 << 25

# Runs of letters, numbers and marks; any other character except separators and controls is a token by itself.
TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
ESCAPE = regex.compile(r"\\(.)")


def tokenize(text: str) -> TokenText:
    """Return the text's tokens after NFD normalisation, in lower case, ready for has_answer.

    They are lower-cased together with the spaces between them, so that a final sigma is judged within its own token.
    """
    tokens = TOKEN.findall(unicodedata.normalize("NFD", text))
    return TokenText(" ".join(("", *tokens, "")).lower())


def has_answer(document: TokenText, answers: Iterable[TokenText]) -> bool:
    """Return whether the document holds the tokens of an answer in sequence; an answer without tokens never matches."""
    return any(answer in document for answer in answers if not answer.isspace())


# (?R), (?1), (?+1), (?-1), (?&name), (?P>name); after an escaped bracket they are text.
_RECURSION = regex.compile(r"(?<!\\)(?:\\\\)*\(\?(?:R\)|[+-]?[0-9]+\)|&|P>)")


class AnswerMatcher:
    """Decides which texts hold an answer, by tokens, or with patterns=True by regular expressions.

    Normalised texts are cached, the most recently used up to CACHE_CHARS characters. Pass the text without the title.
    Not thread-safe.
    """

    def __init__(self, patterns: bool = False) -> None:
        self._patterns = patterns
        self._normalize = _Cache(_decompose if patterns else tokenize, CACHE_CHARS)

    def prepare(self, question_id: str, answers: Sequence[str]) -> Callable[[str], bool]:
        """Return a function that decides whether a text holds an answer to this question.

        Raises:
            QueryError: A pattern is not a regular expression, or runs for more than PATTERN_TIMEOUT_S. The message
                names the question.

        """
        if self._patterns:
            compiled = [_compile(answer, question_id) for answer in answers]
            return lambda text: any(_search(pattern, self._normalize(text), question_id) for pattern in compiled)
        tokenized = [tokenize(answer) for answer in answers]
        return lambda text: has_answer(TokenText(self._normalize(text)), tokenized)


def _decompose(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def _compile(answer: str, question_id: str) -> Any:
    # Decomposed, an escaped letter such as \ě would become the escape \e and a caron: its backslash is removed first.
    pattern = ESCAPE.sub(lambda escape: escape[0] if escape[1].isascii() else escape[1], answer)
    try:
        if _RECURSION.search(pattern):
            raise ValueError("a pattern that calls itself or one of its groups takes memory without bound")
        return regex.compile(_decompose(pattern), regex.IGNORECASE | regex.MULTILINE | regex.UNICODE)
    except (regex.error, ValueError, OverflowError, RecursionError) as err:
        raise QueryError(
            f"question {question_id!r}: answers: expected regular expressions, got {answer[:80]!r}: {err}. "
            "Plain strings are matched without the regex option"
        ) from err


def _search(pattern: Any, text: str, question_id: str) -> bool:
    try:
        return pattern.search(text, timeout=PATTERN_TIMEOUT_S) is not None
    except TimeoutError as err:
        raise QueryError(
            f"question {question_id!r}: answers: expected a match within {PATTERN_TIMEOUT_S} s per text, got a timeout "
            f"of {pattern.pattern[:80]!r}. Write it without nested repeats"
        ) from err


class _Cache:
    """A function with a cache of its latest results, up to max_chars of texts and results together."""

    def __init__(self, function: Callable[[str], str], max_chars: int) -> None:
        self._function, self._max_chars = function, max_chars
        self._cached: OrderedDict[str, str] = OrderedDict()
        self._num_chars = 0

    def __call__(self, text: str) -> str:
        if text in self._cached:
            self._cached.move_to_end(text)
            return self._cached[text]
        result = self._cached[text] = self._function(text)
        self._num_chars += len(text) + len(result)
        while self._num_chars > self._max_chars:
            dropped = self._cached.popitem(last=False)
            self._num_chars -= len(dropped[0]) + len(dropped[1])
        return result
