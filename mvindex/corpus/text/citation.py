"""The citation of a hit: the sentence, list item or row that answers best, and a quote of text around it.

Every part is scored by four signals, a weighted sum: the score of the view that stands for it, the question's terms in
it, what stands beside it, and whether it holds the kind of thing that the question asks for. A heading, a question of a
FAQ, the header of a table and a line of mere markup are not cited where something stands below them: the best part
below is. Nothing is encoded and no index is read. The weights were fitted on questions of SQuAD by
`bench/citations.py --fit`, that of code on those of `bench/docs.py`; that of a part that only refers to another place,
and what a term in code or in a heading counts, were set by hand. Question words, pronouns and such references are
English, the rest is of any language.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from mvindex.corpus.text.parted import KEPT_CHARS, MOST_TERMS, PartedText, counts, parted_text
from mvindex.corpus.text.words import COMMON, COMMON_TERMS, PARTICLES, PHRASAL, terms_of
from mvindex.records import Citation

if TYPE_CHECKING:
    from mvindex.records import Floats, Ints

# The weight of each feature, by the part of the score that it belongs to.
WEIGHTS: Mapping[str, Mapping[str, float]] = {
    "views": {"view": 0.7},
    "terms": {"terms": 4.8, "stems": 3.1},
    "context": {"before": 2.3, "title": -0.8, "refers": -1.5},
    "cues": {"date": 2.3, "number": 1.8, "name": 2.0, "code": 1.5},
}

# The weight of each feature, and its part of the score.
_WEIGHT = {name: weight for weights in WEIGHTS.values() for name, weight in weights.items()}
_PART = {name: part for part, weights in WEIGHTS.items() for name in weights}

# A name that is more than its terms: --no-types, app.run, MAX_SIZE, a/b.toml; or a quoted text.
_NAME = re.compile(
    r"[\"“`]([^\"“”`\n]{2,80})[\"”`]|(?<!\S)--?[A-Za-z][\w-]{0,80}"
    r"|(?<!\w)[^\W_]\w{0,80}(?:(?:[./:\\]|::)\w{1,80}){1,8}|(?<!\w)\w{0,80}_\w{0,80}"
)
# Most questions have none of these, and each name has one.
_NAME_SIGN = re.compile(r"[\"“`_/\\.:-]")
# What a term of the heading counts for the parts below it, beside the first, for which it counts 1.
_UNDER = 0.5
# What a term counts that a part has in its code only, beside one in its sentence.
_IN_CODE = 0.5
# Of a question so many distinct names count, the first ones.
_MOST_NAMES = 32
# Views whose scores differ by less say nothing.
_SAME = 1e-9
_MONTHS = frozenset("january february march april may june july august september october november december".split())
_NUMBERS = frozenset(
    "one two three four five six seven eight nine ten eleven twelve dozen hundred thousand million billion half third "
    "quarter twice first second fourth fifth several couple percent".split()
)
_YEAR = re.compile(r"1[0-9]{3}s?|20[0-9]{2}s?|BC|AD|[Cc]entur(?:y|ies)")


class Sought(Enum):
    """The kind of thing that a question asks for."""

    DATE = "date"
    NUMBER = "number"
    NAME = "name"
    CODE = "code"


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
    (
        Sought.CODE,
        r"\bhow (?:do|can|to|should|would|could)\b|^\s*(?:activate|add|apply|build|call|change|check|choose|configure|"
        r"connect|convert|create|deploy|disable|enable|export|find|get|import|install|list|load|make|open|print|publish|"
        r"put|read|remove|run|save|send|serve|set|show|start|stop|test|unit test|use|write)\b",
    ),
)
_SOUGHT = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _QUESTIONS]


class ScoredViews(NamedTuple):
    """A document's views: the characters that each stands for, (k, 2) int64, -1 for none, and its score, (k,)."""

    spans: Ints
    scores: Floats


CiteLong: TypeAlias = "Callable[[Citer, str, str, ScoredViews | None], Citation | None]"
_CITE_LONG: ContextVar[CiteLong | None] = ContextVar("cite_long", default=None)


@contextmanager
def citing_long_texts_by(cite: CiteLong) -> Iterator[None]:
    """Have texts of which nothing is kept cited by this function inside the block: they take up to seconds each."""
    token = _CITE_LONG.set(cite)
    try:
        yield
    finally:
        _CITE_LONG.reset(token)


@dataclass(frozen=True, eq=False)
class Citer:
    """Chooses citations for one question."""

    question: str

    def cite(self, text: str, title: str = "", views: ScoredViews | None = None) -> Citation | None:
        """Return the part of the text that most likely answers; None for a text without letters and digits.

        Args:
            text: The document's text.
            title: Its title.
            views: Its views with their scores for the question; None where they are not known.
        """
        cite_long = _CITE_LONG.get()
        if cite_long is not None and len(text) > KEPT_CHARS:
            return cite_long(self, text, title, views)
        return self.cite_here(text, title, views)

    def cite_here(self, text: str, title: str, views: ScoredViews | None) -> Citation | None:
        """Return what cite() does, chosen in this thread however long the text is."""
        parted = parted_text(text, title)
        if not parted.units:
            return None
        features = self.features(parted, views)
        return cited_part(parted, text, parted.answer(totals_of(features, len(parted.units))), features)

    def features(self, parted: PartedText, views: ScoredViews | None) -> dict[str, Sequence[float]]:
        """Return the features of the parts by name, one value for each part; those that are 0 for all are left out."""
        found: dict[str, Sequence[float]] = {}
        if viewed := _view_feature(parted, views):
            found["view"] = viewed
        self._add_term_features(parted, found)
        if parted.titled:
            found["title"] = parted.titled
        if parted.refers:
            found["refers"] = parted.refers
        if self._sought is Sought.CODE:
            if any(parted.has_code):
                found["code"] = parted.has_code
        elif self._sought is not None and parted.has_word(_CUES[self._sought]):
            found[self._sought.value] = list(map(_CUES[self._sought], parted.new_words(self._all_terms)))
        return found

    @cached_property
    def _terms(self) -> list[str]:
        """The distinct terms of the question that say something; all of them where none does."""
        terms = dict.fromkeys(terms_of(self.question)[1])
        return ([term for term in terms if term not in COMMON_TERMS] or list(terms))[:MOST_TERMS]

    @cached_property
    def _names(self) -> list[str]:
        """The names of several terms in the question, in lower case: of options, files, functions; quoted texts.

        Verbs with a particle are among them: "back up" is not "rolled back".
        """
        names: list[str] = []
        if _NAME_SIGN.search(self.question):
            names += [name[1] or name[0] for name in _NAME.finditer(self.question)]
        if not PARTICLES.isdisjoint(self._terms):
            names += PHRASAL.findall(self.question)
        return list(dict.fromkeys(map(str.lower, names)))[:_MOST_NAMES] if names else names

    @cached_property
    def _all_terms(self) -> frozenset[str]:
        return frozenset(terms_of(self.question)[1])

    @cached_property
    def _stems(self) -> list[tuple[str, str]]:
        """The long terms, each with its beginning."""
        return [(term, term[: max(4, int(0.7 * len(term)))]) for term in self._terms if len(term) >= 4]

    @cached_property
    def _sought(self) -> Sought | None:
        """The kind of thing that the question asks for; None for others."""
        return next((kind for kind, pattern in _SOUGHT if pattern.search(self.question)), None)

    def _add_term_features(self, parted: PartedText, features: dict[str, Sequence[float]]) -> None:
        """Add the features of terms in common, of this part and of the one before."""
        count = len(parted.units)
        present = [parted.find(term) for term in self._terms if term in parted.terms and term not in parted.defined]
        present = present or [parted.find(term) for term in self._terms if term in parted.terms]
        if self._names:
            names = [parted.find_name(name) for name in self._names if name not in parted.name]
            present += [name for name in names if name.places]
        lines = parted.lines
        stems = [stem for term, stem in self._stems if term not in parted.terms and f"\n{stem}" in lines]
        if present:
            common, total = [0.0] * count, 0.0
            for rarity, places, _, _, in_code in present:
                total += rarity
                for place in places:
                    common[place] += rarity
                for place in in_code:
                    common[place] -= (1 - _IN_CODE) * rarity
            features["terms"] = [value / total for value in common]
            before: Sequence[float] = counts([each.after for each in present], count)
            if parted.has_heads:
                under = counts([each.under for each in present], count)
                before = [right + _UNDER * further for right, further in zip(before, under, strict=True)]
            features["before"] = [value / len(present) for value in before]
        if stems:
            near = [0] * count
            for stem, times in Counter(stems).items():
                for place in parted.parts_with_stem(stem):
                    near[place] += times
            features["stems"] = [value / len(self._terms) for value in near]


def totals_of(features: Mapping[str, Sequence[float]], count: int) -> list[float]:
    """Return the score of each of so many parts: the weighted sum of its features."""
    totals = [0.0] * count
    for name, values in features.items():
        weight = _WEIGHT[name]
        totals = [total + weight * value for total, value in zip(totals, values, strict=True)]
    return totals


def cited_part(parted: PartedText, text: str, place: int, features: Mapping[str, Sequence[float]]) -> Citation:
    """Return a part of a text as it is cited, with what made its score."""
    why = dict.fromkeys(WEIGHTS, 0.0)
    for name, values in features.items():
        why[_PART[name]] += _WEIGHT[name] * values[place]
    return Citation(*parted.shown(text, place), why)


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
    return min(sum(word[0].isupper() and word.lower() not in COMMON for word in words), 3) / 3


_CUES = {Sought.DATE: _date, Sought.NUMBER: _number, Sought.NAME: _name}


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
