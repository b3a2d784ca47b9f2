"""Chooses the part of a document's text that most likely answers a question: what a hit cites.

Every part is scored by four signals, a weighted sum: the score of the view that stands for it, the question's terms in
it, what stands beside it, and whether it holds the kind of thing that the question asks for. A heading, a question of a
FAQ, the header of a table and a line of mere markup are not cited where something stands below them: the best part
below is. Nothing is encoded and no index is read. The weights were fitted on questions of SQuAD by
`bench/citations.py --fit`, that of code on those of `bench/docs.py`; what a term in code or in a heading counts was set
by hand. Question words and pronouns are English, the rest is of any language.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
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
    "context": {"before": 2.3, "title": -0.8},
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


class Citer:
    """Chooses citations for one question."""

    def __init__(self, question: str) -> None:
        self.question = question

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
