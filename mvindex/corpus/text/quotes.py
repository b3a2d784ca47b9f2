"""Several citations of one text, distinct, best first, each with the sentences around it, within a size."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from mvindex.corpus.text.citation import Citer, ScoredViews, cited_part, totals_of
from mvindex.corpus.text.parted import KEPT_CHARS, PartedText, parted_text
from mvindex.records import Citation

# The most citations of a hit, and the most sentences on each side of one.
MOST_QUOTES, MOST_CONTEXT = 50, 20
# What is a token for sure, see about_tokens(): every match is at most one character class of bounded length.
_TOKEN = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,3}|[^\sA-Za-z0-9]| (?=[0-9])|[^\S ]+| {2,}")


@dataclass(frozen=True, slots=True)
class Quoting:
    """How much is quoted of each hit.

    Attributes:
        count: Most citations.
        context: Number of sentences before and after each one.
        max_chars: Most characters of all citations of a hit with what stands around them; None for no limit.
        max_tokens: Most tokens of them, as about_tokens() counts; None for no limit.

    """

    count: int = 1
    context: int = 0
    max_chars: int | None = None
    max_tokens: int | None = None


def about_tokens(text: str) -> int:
    """Return about how many tokens a language model makes of a text, rather too many than too few.

    Models differ, so the count is none of theirs: four letters of a word, three digits, a mark or a gap are one, and a
    character beyond ASCII is one for each of its bytes in UTF-8 but the first. A gap is a space before a digit, several
    spaces, or ends of lines and tabs.
    """
    return sum(
        max(1, len(each.encode("utf-8", "replace")) - 1) if each > "\x7f" else 1 for each in _TOKEN.findall(text)
    )


class _Room(NamedTuple):
    """Room for citations that is left: characters and tokens."""

    chars: float
    tokens: float

    @classmethod
    def of(cls, quoting: Quoting) -> _Room:
        limits = (quoting.max_chars, quoting.max_tokens)
        return cls(*(math.inf if limit is None else limit for limit in limits))

    def fits(self, text: str) -> bool:
        """Return whether there is room for a text."""
        return len(text) <= self.chars and (self.tokens == math.inf or about_tokens(text) <= self.tokens)

    def without(self, text: str) -> _Room:
        """Return what is left after a text."""
        return _Room(
            self.chars - len(text), self.tokens if self.tokens == math.inf else self.tokens - about_tokens(text)
        )


QuoteLong: TypeAlias = "Callable[[Citer, str, str, ScoredViews | None, Quoting], list[Citation]]"
_QUOTE_LONG: ContextVar[QuoteLong | None] = ContextVar("quote_long", default=None)


@contextmanager
def quoting_long_texts_by(quote: QuoteLong) -> Iterator[None]:
    """Have long texts quoted by this function inside the block; see citing_long_texts_by()."""
    token = _QUOTE_LONG.set(quote)
    try:
        yield
    finally:
        _QUOTE_LONG.reset(token)


def quotes(citer: Citer, text: str, title: str, views: ScoredViews | None, quoting: Quoting) -> list[Citation]:
    """Return the citations of a text, best first; the first is that of Citer.cite(), where there is room for it.

    Args:
        citer: Of the question.
        text: The document's text.
        title: Its title.
        views: Its views with their scores; None where they are not known.
        quoting: How many, with how much around them.

    """
    quote_long = _QUOTE_LONG.get()
    if quote_long is not None and len(text) > KEPT_CHARS:
        return quote_long(citer, text, title, views, quoting)
    return quotes_here(citer, text, title, views, quoting)


def quotes_here(citer: Citer, text: str, title: str, views: ScoredViews | None, quoting: Quoting) -> list[Citation]:
    """Return what quotes() does, chosen in this thread however long the text is."""
    parted = parted_text(text, title)
    room = _Room.of(quoting)
    chosen: list[Citation] = []
    for cited in _best_first(citer, parted, text, views):
        if len(chosen) == quoting.count:
            break
        if any(cited.text == other.text for other in chosen) or not room.fits(cited.text):
            continue
        shown = _with_context(parted, text, cited, quoting.context, room)
        for part in (shown.before, shown.text, shown.after):
            room = room.without(part)
        chosen.append(shown)
    return chosen


def _best_first(citer: Citer, parted: PartedText, text: str, views: ScoredViews | None) -> Iterator[Citation]:
    """Yield parts as they are cited: what cite() chooses, then the others by falling scores; none overlaps another."""
    if not parted.units:
        return
    features = citer.features(parted, views)
    totals = totals_of(features, len(parted.units))
    best = parted.answer(totals)
    # A heading is cited by what stands below it, and that has a score of its own.
    others = [place for place in range(len(totals)) if place != best and not parted.is_head(place)]
    starts: list[int] = []
    ends: list[int] = []
    for place in (best, *sorted(others, key=totals.__getitem__, reverse=True)):
        cited = cited_part(parted, text, place, features)
        after = bisect_left(starts, cited.start)
        if (after and ends[after - 1] > cited.start) or (after < len(starts) and starts[after] < cited.end):
            continue
        starts.insert(after, cited.start)
        ends.insert(after, cited.end)
        yield cited


def _with_context(parted: PartedText, text: str, cited: Citation, count: int, room: _Room) -> Citation:
    """Return a citation with up to so many parts before and after it, as far as there is room for whole ones."""
    left = room.without(cited.text)
    before = after = ""
    earlier = [begin for begin, end in parted.units if end <= cited.start][::-1]
    later = [end for begin, end in parted.units if begin >= cited.end]
    for step in range(count):
        for is_after, places in ((False, earlier), (True, later)):
            if step >= len(places):
                continue
            wider = text[cited.end : places[step]] if is_after else text[places[step] : cited.start]
            if not left.without(before if is_after else after).fits(wider):
                continue
            before, after = (before, wider) if is_after else (wider, after)
    return replace(cited, before=before, after=after)
