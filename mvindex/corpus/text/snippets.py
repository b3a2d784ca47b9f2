"""Splits a text into sentences and snippets, the character ranges that its views stand for."""

from __future__ import annotations

import functools
import heapq
import importlib
import importlib.resources
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from mvindex.errors import ConfigError
from mvindex.records import Span, has_visible

# Part of an encoder's fingerprint: increment it whenever the same text may yield other spans.
SPLITTER_VERSION = "punkt_tab-english+camvr-1"
# Punkt's decisions that are kept, and the longest text of one: the words beside a sentence end.
_KEPT_CONTEXTS, _KEPT_CHARS = 1 << 12, 64


def split_snippets(text: str, max_snippets: int) -> list[Span]:
    """Split a text into at most max_snippets ranges, in order: its sentences, the shortest ones merged.

    The ranges do not overlap and together contain every visible character; a text without any has none.
    """
    return merge_sentences(split_sentences(text), max_snippets)


def split_sentences(text: str) -> list[Span]:
    """Split a text into sentences by NLTK's English Punkt model: character ranges without outer whitespace."""
    begins = [begin for begin, _ in _sentence_tokenizer().span_tokenize(text)]
    # A sentence reaches to the next one's start: what Punkt leaves out between two of them can then not be lost.
    borders = [0, *begins[1:], len(text)]
    return [_strip(text, begin, end) for begin, end in itertools.pairwise(borders) if has_visible(text[begin:end])]


def merge_sentences(sentences: Sequence[Span], max_snippets: int) -> list[Span]:
    """Merge sentences into at most max_snippets ranges: the shortest joins its shorter neighbour (CAMVR alg. 1).

    A range's length is its number of characters, with the whitespace inside it. The paper leaves ties open: here the
    leftmost of the shortest is merged, and of two equal neighbours into the left one. Takes O(n log n) time.
    """
    if max_snippets < 1:
        raise ConfigError(f"max_snippets is {max_snippets}; expected 1 or more")
    if len(sentences) <= max_snippets:
        return list(sentences)
    chain = _Chain(sentences)
    for _ in range(len(sentences) - max_snippets):
        chain.merge_shortest()
    return chain.spans()


class _Chain:
    """Spans as a linked list with a heap of their lengths; a merged span is stored at the position of its left part."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans: list[Span | None] = list(spans)
        self._left = list(range(-1, len(spans) - 1))
        self._right = [*range(1, len(spans)), -1]
        self._heap = [(end - begin, position, (begin, end)) for position, (begin, end) in enumerate(spans)]
        heapq.heapify(self._heap)

    def spans(self) -> list[Span]:
        return [span for span in self._spans if span is not None]

    def merge_shortest(self) -> None:
        position = self._pop_shortest()
        left, right = self._left[position], self._right[position]
        if right < 0 or (left >= 0 and self._length(left) <= self._length(right)):
            self._join(left, position)
        else:
            self._join(position, right)

    def _pop_shortest(self) -> int:
        # A heap entry is stale once its position holds another span; it is dropped when it is popped.
        while True:
            _, position, span = heapq.heappop(self._heap)
            if self._spans[position] == span:
                return position

    def _join(self, left: int, right: int) -> None:
        begin, end = self._at(left)[0], self._at(right)[1]
        self._spans[left], self._spans[right] = (begin, end), None
        after = self._right[right]
        self._right[left] = after
        if after >= 0:
            self._left[after] = left
        heapq.heappush(self._heap, (end - begin, left, (begin, end)))

    def _length(self, position: int) -> int:
        begin, end = self._at(position)
        return end - begin

    def _at(self, position: int) -> Span:
        span = self._spans[position]
        if span is None:
            raise RuntimeError(f"position {position} was merged; the links of the chain are broken")
        return span


class _UntimedRules:
    """Punkt's language rules on the standard library's `re`.

    Newer NLTK stops a regular expression after 5 s of wall-clock time, the caller's work between two matches included,
    so that a long text would fail on a busy machine and pass on an idle one. These patterns need no such guard: none
    backtracks over more than one word.
    """

    def __init__(self, rules: Any) -> None:
        self.sent_end_chars = rules.sent_end_chars
        self.re_boundary_realignment = re.compile(rules.re_boundary_realignment.pattern, re.MULTILINE)
        self._period_context = re.compile(rules.period_context_re().pattern, re.VERBOSE)
        self._word = re.compile(rules._word_tokenizer_re().pattern, re.VERBOSE)

    def period_context_re(self) -> re.Pattern[str]:
        return self._period_context

    def word_tokenize(self, line: str) -> list[str]:
        return self._word.findall(line)


class _ZeroIfUnknown(dict[str, int]):
    """A dict that returns 0 for an unknown key without storing it: NLTK's defaultdict grows with every new word."""

    def __missing__(self, key: str) -> int:
        return 0


@functools.cache
def _sentence_tokenizer() -> Any:
    # Imported late: NLTK takes about a second. The data is read by path, so nltk.data's search path stays as it is.
    punkt = importlib.import_module("nltk.tokenize.punkt")
    params = punkt.PunktParameters()
    params.abbrev_types = set(_data_lines("abbrev_types.txt"))
    params.sent_starters = set(_data_lines("sent_starters.txt"))
    params.collocations = {tuple(line.split("\t")) for line in _data_lines("collocations.tab")}
    contexts = (line.split("\t") for line in _data_lines("ortho_context.tab"))
    params.ortho_context = _ZeroIfUnknown((word, int(flags)) for word, flags in contexts)
    tokenizer = punkt.PunktSentenceTokenizer(params, lang_vars=_UntimedRules(punkt.PunktLanguageVars()))
    tokenizer.text_contains_sentbreak = _remembering(tokenizer.text_contains_sentbreak)
    return tokenizer


def _remembering(decide: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return the function with a memory for short texts: a text of nothing but sentence ends repeats a few of them."""
    known = functools.lru_cache(_KEPT_CONTEXTS)(decide)

    def decided(context: str) -> bool:
        return known(context) if len(context) <= _KEPT_CHARS else decide(context)

    return decided


def _data_lines(name: str) -> list[str]:
    folder = importlib.resources.files("mvindex") / "data" / "punkt_tab" / "english"
    return (folder / name).read_text(encoding="utf-8").rstrip("\n").split("\n")


def _strip(text: str, begin: int, end: int) -> Span:
    part = text[begin:end]
    return begin + len(part) - len(part.lstrip()), begin + len(part.rstrip())
