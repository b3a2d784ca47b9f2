"""Chooses the part of a document's text that most likely answers a question: what a hit cites.

Every part is scored by four signals, a weighted sum: the score of the view that stands for it, the question's terms in
it, what stands beside it, and whether it holds the kind of thing that the question asks for. A heading, a question of a
FAQ and the header of a table are not cited where something stands below them: the best part below is. Nothing is
encoded and no index is read. The weights were fitted on questions of SQuAD by `bench/citations.py --fit`; question
words and pronouns are English, the rest is of any language.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, cached_property, lru_cache
from itertools import compress, count, islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mvindex.corpus.text.headings import headed_parts, named_cells
from mvindex.corpus.text.normal import normal_form
from mvindex.corpus.text.units import LONGEST_CHARS, split_units
from mvindex.records import Citation

if TYPE_CHECKING:
    from mvindex.records import Floats, Ints
from mvindex.corpus.text.unspaced import PAIRED, pairs_of

# The weight of each feature, by the part of the score that it belongs to.
WEIGHTS: Mapping[str, Mapping[str, float]] = {
    "views": {"view": 0.7},
    "terms": {"terms": 4.8, "stems": 3.1},
    "context": {"before": 2.3, "title": -0.8},
    "cues": {"date": 2.3, "number": 1.8, "name": 2.0},
}

# The weight of each feature, and its part of the score.
_WEIGHT = {name: weight for weights in WEIGHTS.values() for name, weight in weights.items()}
_PART = {name: part for part, weights in WEIGHTS.items() for name in weights}

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?(?:[.,][0-9]+)*")
# Where these or scripts that have marks of their own are in a text, its words are found by another pattern.
_MARKS = re.compile(
    "[\u00ad\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u0711-\u1cff\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20d0-\u20ff\u302a-\u302f\u3099\u309a"
    "\ua66f-\uabff\ufb1e\ufe00-\ufe2f\ufeff\U00010000-\U0010ffff]"
)
_SPECIAL = re.compile(f"[{_MARKS.pattern[1:-1]}{PAIRED.pattern[1:-1]}]")
# Of longer texts nothing is kept: 256 of this length take some 50 MB.
_KEPT_CHARS = 8_000
# Views whose scores differ by less say nothing.
_SAME = 1e-9
# Of these no answer is made: articles, pronouns, auxiliary verbs, question words.
_COMMON = frozenset(
    "a an the of in on at to for by with from and or but as is are was were be been being do does did has have had it "
    "its this that these those he she they his her their them which who whom whose what when where why how many much "
    "there than then so such not no can could would should will may might must i you we s".split()
)
_MONTHS = frozenset("january february march april may june july august september october november december".split())
_NUMBERS = frozenset(
    "one two three four five six seven eight nine ten eleven twelve dozen hundred thousand million billion half third "
    "quarter twice first second fourth fifth several couple percent".split()
)
_YEAR = re.compile(r"1[0-9]{3}s?|20[0-9]{2}s?|BC|AD|[Cc]entur(?:y|ies)")
_SUFFIXES = (
    ("ational", 3), ("ization", 3), ("ation", 3), ("ment", 4), ("ness", 3), ("ingly", 3), ("edly", 3), ("ing", 3),
    ("ied", 2), ("ed", 3), ("ion", 4), ("er", 4), ("or", 4), ("ly", 3), ("al", 4), ("ive", 4), ("e", 3), ("y", 3),
)  # fmt: skip


class Sought(Enum):
    """The kind of thing that a question asks for."""

    DATE = "date"
    NUMBER = "number"
    NAME = "name"


# In this order: "how many years" asks for a number, "what year" for a date.
_QUESTIONS = (
    (
        Sought.DATE,
        r"\bwhen\b|\b(?:what|which|what was the) (?:year|date|day|month|decade|century|time|period|season)"
        r"|\bhow (?:old|long ago)",
    ),
    (
        Sought.NUMBER,
        r"\bhow (?:many|much|long|far|large|big|tall|high|fast|often|deep|wide)"
        r"|\b(?:percentage|percent|number|population|amount|cost|price|size|distance|length|rate|ratio|temperature)\b",
    ),
    (
        Sought.NAME,
        r"\bwho(?:m|se)?\b|\bwhere\b|\bname of\b|\bnamed?\b|\b(?:what|which) (?:person|man|woman|scientist|king|queen|"
        r"player|author|actor|president|leader|singer|artist|team|company|group|organization|actress|composer|emperor|"
        r"philosopher|architect|character|family|people|city|country|state|place|location|region|river|town|continent|"
        r"island|area|stadium|university|school|building|street|county|nation)",
    ),
)
_SOUGHT = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _QUESTIONS]


class ScoredViews(NamedTuple):
    """A document's views: the characters that each stands for, (k, 2) int64, -1 for none, and its score, (k,)."""

    spans: Ints
    scores: Floats


class Citer:
    """Chooses citations for one question."""

    def __init__(self, question: str) -> None:
        self._question = question

    def cite(self, text: str, title: str = "", views: ScoredViews | None = None) -> Citation | None:
        """Return the part of the text that most likely answers; None for a text without letters and digits.

        Args:
            text: The document's text.
            title: Its title.
            views: Its views with their scores for the question; None where they are not known.
        """
        parted = parted_text(text, title)
        if not parted.units:
            return None
        features = self.features(parted, views)
        totals = [0.0] * len(parted.units)
        for name, values in features.items():
            weight = _WEIGHT[name]
            totals = [total + weight * value for total, value in zip(totals, values, strict=True)]
        best = parted.answer(totals)
        why = dict.fromkeys(WEIGHTS, 0.0)
        for name, values in features.items():
            why[_PART[name]] += _WEIGHT[name] * values[best]
        return Citation(*parted.shown(text, best), why)

    def features(self, parted: PartedText, views: ScoredViews | None) -> dict[str, Sequence[float]]:
        """Return the features of the parts by name, one value for each part; those that are 0 for all are left out."""
        found: dict[str, Sequence[float]] = {}
        if viewed := _view_feature(parted, views):
            found["view"] = viewed
        self._add_term_features(parted, found)
        if parted.titled:
            found["title"] = parted.titled
        if self._cue is not None:
            name, cue = self._cue
            asked = self._all_terms
            found[name] = list(map(cue, parted.new_words(asked)))
        return found

    @cached_property
    def _terms(self) -> list[str]:
        """The distinct terms of the question that say something; all of them where none does."""
        terms = dict.fromkeys(_terms_of(self._question)[1])
        return [term for term in terms if term not in _COMMON_TERMS] or list(terms)

    @cached_property
    def _all_terms(self) -> frozenset[str]:
        return frozenset(_terms_of(self._question)[1])

    @cached_property
    def _stems(self) -> list[tuple[str, str]]:
        """The long terms, each with its beginning."""
        return [(term, term[: max(4, int(0.7 * len(term)))]) for term in self._terms if len(term) >= 4]

    @cached_property
    def _cue(self) -> tuple[str, Callable[[Sequence[str]], float]] | None:
        """The name of the kind of thing that the question asks for, and what looks for it in words; None for others."""
        sought = next((kind for kind, pattern in _SOUGHT if pattern.search(self._question)), None)
        return None if sought is None else (sought.value, _CUES[sought])

    def _add_term_features(self, parted: PartedText, features: dict[str, Sequence[float]]) -> None:
        """Add the features of terms in common, of this part and of the one before."""
        count = len(parted.units)
        present = [parted.find(term) for term in self._terms if term in parted.terms]
        lines = parted.lines
        near = [
            parted.parts_with_stem(stem)
            for term, stem in self._stems
            if term not in parted.terms and f"\n{stem}" in lines
        ]
        if present:
            common, total = [0.0] * count, 0.0
            for rarity, places, _ in present:
                total += rarity
                for place in places:
                    common[place] += rarity
            features["terms"] = [value / total for value in common]
            features["before"] = [value / len(present) for value in _counts([each.after for each in present], count)]
        if near:
            features["stems"] = [value / len(self._terms) for value in _counts(near, count)]


class _Found(NamedTuple):
    """Where a term is: its rarity, the numbers of the parts that have it, and of those after them that have it not."""

    rarity: float
    places: frozenset[int]
    after: frozenset[int]


class PartedText:
    """The parts of a document's text and the terms in them, which are the same for every question.

    Words and terms are one list each: lists of each part's own would hold up a server, whose collector of garbage
    looks at every list.

    Attributes:
        units: The character range of each part.
        terms: The distinct terms.
        lines: The same, each after a line break: one search tells whether any begins so; most often none does.
        titled: The share of the title's terms that each part has; empty for a title without terms.

    """

    def __init__(self, text: str, title: str) -> None:
        self.units = split_units(text)
        self._headed = headed_parts(text, self.units, title)
        self._words: list[str] = []
        self._all_terms: list[str] = []
        # Where the words of each part begin, and of the last one end.
        self._starts = [0]
        for start, end in self.units:
            words, terms = _terms_of(text[start:end])
            self._words += words
            self._all_terms += terms
            self._starts.append(len(words) + self._starts[-1])
        self.terms = frozenset(self._all_terms)
        self._found: dict[str, _Found] = {}
        self.lines = "\n" + "\n".join(self.terms)
        titles = frozenset(_terms_of(title)[1])
        shared = _counts([self.find(term).places for term in titles & self.terms], len(self.units))
        self.titled = [number / len(titles) for number in shared] if titles else []
        # Threads share it: spans and what was made of them are one object.
        self._viewed: tuple[bytes, list[int]] | None = None

    def find(self, term: str) -> _Found:
        """Return where a term of the text is."""
        found = self._found.get(term)
        if found is None:
            own, total = self._places({term}), len(self.units)
            rarity = math.log1p((total - len(own) + 0.5) / (len(own) + 0.5))
            after = frozenset(place + 1 for place in own if place + 1 < total) - own
            found = self._found[term] = _Found(rarity, own, after)
        return found

    def parts_with_stem(self, stem: str) -> frozenset[int]:
        """Return the numbers of the parts with a term that begins like this."""
        return self._places({term for term in self.terms if term.startswith(stem)})

    def new_words(self, asked: frozenset[str]) -> Iterator[list[str]]:
        """Yield of each part the words that the question does not have."""
        pairs = zip(self._words, self._all_terms, strict=True)
        for begin, end in pairwise(self._starts):
            yield [word for word, term in islice(pairs, end - begin) if term not in asked]

    def _places(self, terms: set[str]) -> frozenset[int]:
        """Return the numbers of the parts that have any of the terms."""
        found = compress(count(), map(terms.__contains__, self._all_terms))
        return frozenset(bisect_right(self._starts, number) - 1 for number in found)

    def answer(self, totals: Sequence[float]) -> int:
        """Return the number of the part with the highest total, the first of equals; below a heading where it is one.

        The parts below a heading end at the next one.
        """
        best, heads = totals.index(max(totals)), self._headed.heads
        if not heads[best]:
            return best
        first = next((place for place in range(best, len(heads)) if not heads[place]), None)
        if first is None:
            return best
        last = next((place for place in range(first, len(heads)) if heads[place]), len(heads))
        return max(range(first, last), key=totals.__getitem__)

    def shown(self, text: str, place: int) -> tuple[str, int, int]:
        """Return a part as it is cited, and its characters: of a row of a table its cells with their columns' names."""
        part = begin, end = self.units[place]
        header = self._headed.headers.get(place)
        if header is None:
            return text[begin:end], begin, end
        row = self._headed.rows[place]
        if row[1] - row[0] <= LONGEST_CHARS:
            part = row
        return named_cells(text, self.units[header], row, part) or text[begin:end], *part

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
    return (_kept if len(text) <= _KEPT_CHARS else PartedText)(text, title)


def _counts(places: Iterable[frozenset[int]], count: int) -> list[int]:
    """Return for each of so many parts how many of the sets have it."""
    counts = [0] * count
    for each in places:
        for place in each:
            counts[place] += 1
    return counts


def _view_feature(parted: PartedText, views: ScoredViews | None) -> Sequence[float]:
    """Return the score of the view that stands for most of each part, in standard deviations from their mean.

    Encoders have scores of different scales. A part that no view stands for has the lowest score of the others. Empty
    where no view stands for a part, or all score the same.
    """
    if views is None or not len(views.spans):
        return ()
    chosen = parted.views_of_parts(views.spans)
    known: list[float] = views.scores.tolist()
    scored = [known[view] for view in chosen if view >= 0]
    if not scored:
        return ()
    # Of a few parts: in lists, numpy's calls would take three times as long.
    scores = scored
    if len(scored) < len(chosen):
        least = min(scored)
        scores = [known[view] if view >= 0 else least for view in chosen]
    mean = sum(scores) / len(scores)
    deviation = math.dist(scores, [mean] * len(scores)) / math.sqrt(len(scores))
    return [(score - mean) / deviation for score in scores] if deviation >= _SAME else ()


def _date(words: Sequence[str]) -> float:
    return float(any(word.lower() in _MONTHS or _YEAR.fullmatch(word) for word in words))


def _number(words: Sequence[str]) -> float:
    return min(sum(map(_is_number, words)), 2) / 2


def _is_number(word: str) -> bool:
    return word.lower() in _NUMBERS if word.isalpha() else any(char.isdigit() for char in word)


def _name(words: Sequence[str]) -> float:
    return min(sum(word[0].isupper() and word.lower() not in _COMMON for word in words), 3) / 3


_CUES = {Sought.DATE: _date, Sought.NUMBER: _number, Sought.NAME: _name}


@cache
def _word_with_marks() -> Any:
    """Return the pattern of words with marks, which are vowels in Hindi, and what is not seen, such as soft hyphens."""
    import regex  # few texts need it

    letters = r"[\p{L}\p{N}][\p{L}\p{N}\p{M}\p{Cf}]*"
    return regex.compile(rf"{letters}(?:['’]{letters})?(?:[.,][0-9]+)*")


def _terms_of(text: str) -> tuple[list[str], list[str]]:
    """Return the words of a text, and the term of each; of scripts searched by pairs of letters both are these."""
    if text.isascii() or not _SPECIAL.search(text):
        words = _WORD.findall(text)
    else:
        words = [
            part
            for word in (_word_with_marks() if _MARKS.search(text) else _WORD).findall(text)
            for part in (pairs_of(normal_form(word)) if PAIRED.search(word) else [word])
        ]
    # All at once, which is quicker than word by word.
    forms = words if text.isascii() or not words else normal_form("\n".join(words)).split("\n")
    return words, [_stem(form) for form in forms]


@lru_cache(1 << 16)
def _stem(word: str) -> str:
    """Return a word in lower case without plural and common English suffixes."""
    term = word.lower()
    if term.endswith(("'s", "’s")):
        term = term[:-2]
    if len(term) > 3 and term.endswith("s") and not term.endswith(("ss", "us", "is")):
        if term.endswith("ies") and len(term) > 4:
            term = term[:-3] + "y"
        else:
            term = term[:-2] if term.endswith(("sses", "shes", "ches", "xes")) else term[:-1]
    for suffix, least in _SUFFIXES:
        if term.endswith(suffix) and len(term) - len(suffix) >= least:
            term = term[: -len(suffix)]
            return term[:-1] if len(term) > 3 and term[-1] == term[-2] and term[-1] not in "sl" else term
    return term


_COMMON_TERMS = frozenset(_stem(word) for word in _COMMON)
