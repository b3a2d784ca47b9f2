"""The parts of a text that a citation may be, and where terms are in them: the same for every question.

Of a short text it is kept for the next question that finds it.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, compress, count, islice, pairwise, takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mvindex.corpus.text.blocks import Kind, Stretch, is_definition, parse_directive, stretches
from mvindex.corpus.text.headings import NO_PART, headed_parts, named_cells
from mvindex.corpus.text.units import LONGEST_CHARS, split_units
from mvindex.corpus.text.words import PHRASAL, SHORT_CHARS, terms_of, terms_of_short

if TYPE_CHECKING:
    from mvindex.records import Ints, Span

# Of a question and of a title so many distinct terms count, the first ones.
MOST_TERMS = 256
# In longer texts, of which no object is kept, more terms than that are looked up in a table of all.
_FEW_TERMS = 16
# Of longer texts nothing is kept: 256 of this length take some 50 MB.
KEPT_CHARS = 8_000
# What introduces a list is cited with its items, up to so many characters.
_LONGEST_LIST_CHARS = 400
_ITEM = re.compile(r"(?:[-*+•–]|\(?(?:\d{1,3}|[a-z]|#)[.)])\s")
# A part that only says where more is written: "See [the guide](guide.md).", "For more information see ...".
_REFERS = re.compile(
    r"[-*+(\s]{0,4}(?:\.\. seealso::"
    r"|(?:See|Read more|Learn more|Refer to)\b[^`\[<]{0,80}(?:\[[^\]]{1,80}\][(\[]|:[a-z:]{2,20}:`|<)"
    r"|For (?:more|further|full|additional|details|information)\b[^.:;`]{0,80}\b(?:see|read|refer to|consult|visit)\b)"
)


class Found(NamedTuple):
    """Where a term is.

    Attributes:
        rarity: How few parts have it.
        places: The numbers of the parts that have it.
        after: Those of the parts right after these that have it not, or below one that introduces several.
        under: Those of the other parts below headings with it that have it not.
        in_code: Those of the parts that have it in their code only.
    """

    rarity: float
    places: frozenset[int]
    after: frozenset[int]
    under: frozenset[int]
    in_code: frozenset[int]


_NOWHERE: frozenset[int] = frozenset()


class PartedText:
    """The parts of a document's text and the terms in them, which are the same for every question.

    Words and terms are one list each: lists of each part's own would hold up a server, whose collector of garbage
    looks at every list.

    Attributes:
        units: The character range of each part.
        terms: The distinct terms.
        lines: The same, each after a line break: one search tells whether any begins so; most often none does.
        titled: The share of the title's terms that each part has; empty for a title without terms.
        has_code: 1 for each part that holds code, else 0.
        refers: 1 for each part that only refers to another place, else 0; empty where none does.
        has_heads: Whether any part stands above others.
        defined: The terms of the name that the text defines, if it is a definition: all of its parts are about them.

    """

    def __init__(self, text: str, title: str) -> None:
        lines = tuple(stretches(text))
        self.units = split_units(text, lines)
        self._headed = headed_parts(text, self.units, title)
        for place in _inside(self.units, [line for line in lines if line.kind is Kind.MARK]):
            self._headed.heads[place] = True
        # Where what a part introduces ends, by the number of the part: it is cited with it.
        self._led = _led_parts(text, self.units, self._headed.heads)
        # Where the tabs or names below a part that introduces them all end, by the number of the part.
        self._named_ends = _named_ends(self.units, self._led, [line for line in lines if line.kind is Kind.NAME])
        self.has_heads = any(self._headed.heads)
        self._section_ends = _section_ends(self._headed.heads) if self.has_heads else []
        codes = [line for line in lines if line.kind is Kind.CODE]
        self.has_code = _code_parts(self.units, codes)
        refers = [float(_REFERS.match(text, begin, end) is not None) for begin, end in self.units]
        self.refers = refers if any(refers) else []
        # Of parts with code, what stands before it: in what a command prints a term says less than in a sentence.
        self._leads: dict[int, frozenset[str]] = {}
        cuts = _code_cuts(self.units, codes)
        directive = parse_directive(text.partition("\n")[0]) if text.startswith(".. ") else None
        self.name = directive[1].lower() if directive and is_definition(directive[0]) else ""
        self.defined = frozenset(terms_of(self.name)[1])
        self._text = text
        self._words: list[str] = []
        self._all_terms: list[str] = []
        # Where the words of each part begin, and of the last one end.
        self._starts = [0]
        for place, (start, end) in enumerate(self.units):
            if place in cuts:
                words, terms = terms_of(text[start : cuts[place]])
                self._leads[place] = frozenset(terms)
                self._words += words
                self._all_terms += terms
                start = cuts[place]
            words, terms = (terms_of_short if end - start <= SHORT_CHARS else terms_of)(text[start:end])
            self._words += words
            self._all_terms += terms
            self._starts.append(len(self._words))
        self.terms = frozenset(self._all_terms)
        self._found: dict[str, Found] = {}
        self._num_lookups = 0
        self.lines = "\n" + "\n".join(self.terms)
        # The first sentence of a definition says its name again, and is none the worse for it.
        titles = frozenset(list(dict.fromkeys(terms_of(title)[1]))[:MOST_TERMS]) - self.defined
        shared = counts([self._places({term}) for term in titles & self.terms], len(self.units))
        self.titled = [number / len(titles) for number in shared] if titles else []
        # Threads share it: spans and what was made of them are one object.
        self._viewed: tuple[bytes, list[int]] | None = None

    @cached_property
    def _lower(self) -> str:
        lower = self._text.lower()
        return lower if len(lower) == len(self._text) else self._text

    def find(self, term: str) -> Found:
        """Return where a term of the text is."""
        found = self._found.get(term)
        if found is None:
            own = self._places({term})
            found = self._made_found(own)
            if self._leads:
                in_code = frozenset(place for place in own & self._leads.keys() if term not in self._leads[place])
                found = found._replace(in_code=in_code)
            self._found[term] = found
        return found

    def _made_found(self, own: frozenset[int]) -> Found:
        total = len(self.units)
        rarity = math.log1p((total - len(own) + 0.5) / (len(own) + 0.5))
        after = frozenset(place + 1 for place in own if place + 1 < total) - own
        if self._named_ends:
            # What a sentence says of several tabs is said of each.
            said = (range(place + 1, self._named_ends[place]) for place in own & self._named_ends.keys())
            after = after.union(*said) - own
        if not self.has_heads:
            return Found(rarity, own, after, _NOWHERE, _NOWHERE)
        under = self._under(own) - own - after
        return Found(rarity, own, after, under, _NOWHERE)

    def find_name(self, name: str) -> Found:
        """Return where a name of several terms, in lower case, stands by itself: no other such sign beside it."""
        if name not in self._found:
            if PHRASAL.fullmatch(name):
                verb, particle = name.split()
                form = rf"{verb}(?:s|ed|ing)?[\s-]?{particle}"
            else:
                form = re.escape(name)
            own: list[int] = []
            if name.split()[0] in self._lower:
                pattern, units = re.compile(rf"(?<![\w.-]){form}(?![\w-]|\.\w)"), enumerate(self.units)
                own = [place for place, (begin, end) in units if pattern.search(self._lower, begin, end)]
            self._found[name] = self._made_found(frozenset(own))
        return self._found[name]

    def _under(self, places: frozenset[int]) -> frozenset[int]:
        """Return the numbers of the parts below those of the parts that are headings."""
        below: set[int] = set()
        reach = 0
        for place in sorted(place for place in places if self._headed.heads[place]):
            below.update(range(max(place + 1, reach), self._section_ends[place]))
            reach = max(reach, self._section_ends[place])
        return frozenset(below)

    def parts_with_stem(self, stem: str) -> frozenset[int]:
        """Return the numbers of the parts with a term that begins like this."""
        terms = self._sorted_terms
        first = bisect_left(terms, stem)
        return self._places(set(takewhile(lambda term: term.startswith(stem), islice(terms, first, None))))

    @cached_property
    def _sorted_terms(self) -> list[str]:
        return sorted(self.terms)

    @cached_property
    def _places_of_terms(self) -> dict[str, list[int]]:
        """The numbers of the parts that have each term."""
        places: dict[str, list[int]] = {}
        for place, (begin, end) in enumerate(pairwise(self._starts)):
            for term in self._all_terms[begin:end]:
                places.setdefault(term, []).append(place)
        return places

    def has_word(self, is_one: Callable[[Sequence[str]], float]) -> bool:
        """Return whether any word is one of those that a function looks for among words."""
        return any(is_one((word,)) for word in frozenset(self._words))

    def new_words(self, asked: frozenset[str]) -> Iterator[list[str]]:
        """Yield of each part the words that the question does not have."""
        pairs = zip(self._words, self._all_terms, strict=True)
        for begin, end in pairwise(self._starts):
            yield [word for word, term in islice(pairs, end - begin) if term not in asked]

    def _places(self, terms: set[str]) -> frozenset[int]:
        """Return the numbers of the parts that have any of the terms."""
        self._num_lookups += 1
        if self._num_lookups > _FEW_TERMS and len(self._text) > KEPT_CHARS:
            return frozenset(chain.from_iterable(map(self._places_of_terms.__getitem__, terms)))
        found = compress(count(), map(terms.__contains__, self._all_terms))
        return frozenset(bisect_right(self._starts, number) - 1 for number in found)

    def answer(self, totals: Sequence[float]) -> int:
        """Return the number of the part with the highest total, the first of equals; below a heading where it is one.

        The parts below a heading end at the next one.
        """
        best, heads = totals.index(max(totals)), self._headed.heads
        if not heads[best]:
            named = max(range(best + 1, self._named_ends.get(best, best + 1)), key=totals.__getitem__, default=best)
            return best if named == best + 1 else named
        first = next((place for place in range(best, len(heads)) if not heads[place]), None)
        if first is None:
            others = [place for place, is_head in enumerate(heads) if not is_head]
            return max(others, key=totals.__getitem__, default=best)
        last = next((place for place in range(first, len(heads)) if heads[place]), len(heads))
        return max(range(first, last), key=totals.__getitem__)

    def is_head(self, place: int) -> bool:
        """Return whether a part only stands above others, such as a heading."""
        return self._headed.heads[place]

    def shown(self, text: str, place: int) -> tuple[str, int, int]:
        """Return a part as it is cited, and its characters: of a row of a table its cells with their columns' names."""
        part = begin, end = self.units[place]
        header = self._headed.headers.get(place)
        if header is None:
            end = self._led.get(place, end)
            return text[begin:end], begin, end
        row = self._headed.rows[place]
        if row[1] - row[0] <= LONGEST_CHARS:
            part = row
        named = self._headed.columns if header == NO_PART else self.units[header]
        return named_cells(text, named, row, part) or text[begin:end], *part

    def views_of_parts(self, spans: Ints) -> list[int]:
        """Return the number of the view that stands for most of each part; -1 where none does.

        spans: (k, 2) int64.
        """
        key, viewed = spans.tobytes(), self._viewed
        if viewed is None or viewed[0] != key:
            starts, ends = np.array(self.units).T
            shared = np.minimum(ends[:, None], spans[:, 1]) - np.maximum(starts[:, None], spans[:, 0])
            shared[:, spans[:, 0] < 0] = 0
            self._viewed = viewed = key, np.where(shared.max(axis=1) > 0, shared.argmax(axis=1), -1).tolist()
        return viewed[1]


@lru_cache(256)
def _kept(text: str, title: str) -> PartedText:
    return PartedText(text, title)


def parted_text(text: str, title: str) -> PartedText:
    """Return what is known of a text; that of short texts is kept for the next question that finds them."""
    return (_kept if len(text) <= KEPT_CHARS else PartedText)(text, title)


def counts(places: Iterable[frozenset[int]], count: int) -> list[int]:
    """Return for each of so many parts how many of the sets have it."""
    counts = [0] * count
    for each in places:
        for place in each:
            counts[place] += 1
    return counts


def _inside(units: Sequence[Span], lines: Sequence[Stretch]) -> Iterator[int]:
    """Yield the numbers of the parts that stand in one of the stretches of lines, which are in order."""
    at = 0
    for place, (begin, end) in enumerate(units if lines else ()):
        while at < len(lines) and lines[at].end < end:
            at += 1
        if at < len(lines) and lines[at].begin <= begin:
            yield place


def _section_ends(heads: Sequence[bool]) -> list[int]:
    """Return of each part where the parts below it end: at the next one that stands above others."""
    ends, end = [0] * len(heads), len(heads)
    for place in range(len(heads) - 1, -1, -1):
        # Headings of two levels, or a heading and a label, stand above the same parts.
        is_above_head = place + 1 < len(heads) and heads[place + 1]
        ends[place] = ends[place + 1] if is_above_head else end
        if heads[place]:
            end = place
    return ends


def _named_ends(units: Sequence[Span], led: Mapping[int, int], names: Sequence[Stretch]) -> dict[int, int]:
    """Return where several parts that begin with a name end, such as tabs, below the parts that introduce them."""
    if not led or len(names) < 2:
        return {}
    named, ends = set(_inside([(begin, begin + 1) for begin, _ in units], names)), [0] * (len(units) + 1)
    for place in range(len(units), -1, -1):
        ends[place] = ends[place + 1] if place in named else place
    return {place: ends[place + 1] for place in led if ends[place + 1] > place + 2}


def _led_parts(text: str, units: Sequence[Span], heads: list[bool]) -> dict[int, int]:
    """Return where parts that end in a colon end with what they introduce: list items that fit, or the next part.

    One that introduces nothing that fits stands above what follows, as a heading does, which is noted in heads; not the
    end of a paragraph with nothing below: "In 1937 he stated:" may answer.
    """
    led: dict[int, int] = {}
    if ":" not in text and "：" not in text:
        return led
    for place, (begin, end) in enumerate(units):
        if text[end - 1] not in ":：" or heads[place]:
            continue
        for item in range(place + 1, len(units)):
            first, last = units[item]
            if last - begin > _LONGEST_LIST_CHARS or not _ITEM.match(text, first) or text[end:first].strip():
                break
            end = led[place] = last
        if place not in led:
            after = next((each for each in range(place + 1, len(units)) if not heads[each]), None)
            fits = after is not None and units[after][1] - begin <= LONGEST_CHARS
            if after is not None and fits:
                led[place] = units[after][1]
            elif after is not None or place == 0 or "\n" in text[units[place - 1][1] : begin]:
                heads[place] = True
    return led


def _code_cuts(units: Sequence[Span], codes: Sequence[Stretch]) -> dict[int, int]:
    """Return where the code begins of parts that have something before it, by their numbers."""
    cuts: dict[int, int] = {}
    starts = [code.begin for code in codes]
    for place, (begin, end) in enumerate(units if codes else ()):
        at = bisect_left(starts, begin)
        if at < len(codes) and begin < starts[at] < end:
            cuts[place] = starts[at]
    return cuts


def _code_parts(units: Sequence[Span], codes: Sequence[Stretch]) -> list[float]:
    """Return 1 for each part that holds code, else 0."""
    if not codes:
        return [0.0] * len(units)
    starts = [code.begin for code in codes]
    has_code = []
    for begin, end in units:
        at = bisect_left(starts, end) - 1
        has_code.append(float(at >= 0 and codes[at].end > begin))
    return has_code
