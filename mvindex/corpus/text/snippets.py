"""Splits a text into sentences and snippets, the character ranges that its views stand for."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Sequence

from mvindex.corpus.text.punkt import sentence_starts
from mvindex.errors import ConfigError
from mvindex.records import Span, has_visible

# Part of an encoder's fingerprint: increment it whenever the same text may yield other spans.
SPLITTER_VERSION = "punkt_tab-english+camvr-1"


def split_snippets(text: str, max_snippets: int) -> list[Span]:
    """Split a text into at most max_snippets ranges, in order: its sentences, the shortest ones merged.

    The ranges do not overlap and together contain every visible character; a text without any has none.
    """
    return merge_sentences(split_sentences(text), max_snippets)


def split_sentences(text: str) -> list[Span]:
    """Split a text into sentences by NLTK's English Punkt model: character ranges without outer whitespace."""
    begins = sentence_starts(text)
    # A sentence reaches to the next one's start: what Punkt leaves out between two of them can then not be lost.
    borders = [0, *begins[1:], len(text)]
    pieces = ((begin, text[begin:end]) for begin, end in itertools.pairwise(borders))
    return [without_whitespace(begin, piece) for begin, piece in pieces if has_visible(piece)]


def merge_sentences(sentences: Sequence[Span], max_snippets: int) -> list[Span]:
    """Merge sentences into at most max_snippets ranges: the shortest joins its shorter neighbour (CAMVR alg. 1).

    No range is empty. A range's length is its number of characters, with the whitespace inside it. The paper leaves
    ties open: here the leftmost of the shortest is merged, and of two equal neighbours into the left one. Takes
    O(n log n) time.
    """
    if max_snippets < 1:
        raise ConfigError(f"max_snippets is {max_snippets}; expected 1 or more")
    if len(sentences) <= max_snippets:
        return list(sentences)
    begins, ends = (list(places) for places in zip(*sentences, strict=True))
    lefts, rights = list(range(-1, len(begins) - 1)), [*range(1, len(begins)), -1]
    # A merged span is longer than both of its parts: no length gets positions after it was taken.
    positions = defaultdict[int, list[int]](list)
    for position, (begin, end) in enumerate(sentences):
        positions[end - begin].append(position)
    lengths = list(positions)
    heapq.heapify(lengths)
    num_spans = len(sentences)
    while num_spans > max_snippets:
        length = heapq.heappop(lengths)
        for position in sorted(positions.pop(length)):
            if ends[position] - begins[position] != length or num_spans == max_snippets:
                continue
            left, right = lefts[position], rights[position]
            if right < 0 or (left >= 0 and ends[left] - begins[left] <= ends[right] - begins[right]):
                left, right = left, position
            else:
                left = position
            # The right span becomes empty, and is skipped from then on.
            ends[left], ends[right] = ends[right], begins[right]
            after = rights[left] = rights[right]
            if after >= 0:
                lefts[after] = left
            num_spans -= 1
            merged = ends[left] - begins[left]
            if merged not in positions:
                heapq.heappush(lengths, merged)
            positions[merged].append(left)
    return [span for span in zip(begins, ends, strict=True) if span[0] < span[1]]


def without_whitespace(begin: int, piece: str) -> Span:
    """Return the range of a piece of a text, which begins there, without outer whitespace; an empty one for none."""
    first = begin + len(piece) - len(piece.lstrip()) if piece[:1].isspace() else begin
    return first, max(first, begin + len(piece.rstrip()))
