"""Sentence ends in German, French, Spanish, Italian, Portuguese, Dutch, Polish, Russian, Chinese and Japanese.

Rules for English cut after an abbreviation of another language, and nowhere in a text without spaces. What is here
takes these cuts away, and adds the others; it is about words and marks that English has not.
"""

from __future__ import annotations

import itertools
import re

from mvindex.corpus.text.punkt import sentence_starts
from mvindex.corpus.text.snippets import without_whitespace
from mvindex.records import Span, has_visible

# Before a sentence of these languages, beside what English has: inverted marks, low and angled quotes. After one: the
# angled quote, also behind a space, and the one that is low in English.
OPENERS, CLOSERS = "¿¡„«‹", "»›“"
# Letters of scripts without spaces; what follows the marks that end a sentence there: all closing quotes, and then no
# particle by which the quoted is reported.
UNSPACED = "\u3040-\u30ff\u3400-\u9fff"
AFTER_UNSPACED = "(?:[」』”’）]+(?![」』”’）とっ、])|(?![」』”’）]))"
_ENDS_WITHOUT_SPACE = re.compile(rf"(?:[。！？]|(?<=[{UNSPACED}])[!?])[。！？!?]*{AFTER_UNSPACED}")
# In lower case; those in capitals are others, such as those of states.
_ABBREVIATIONS = frozenset(
    # German
    "abb anm bd bspw bzgl bzw ca evtl ggf hrsg inkl insb jh nr sog usw vgl zzgl z.b u.a d.h u.u o.ä s.o s.u v.a i.d.r "
    # French
    "apr av cf mlle mme p.ex ste "
    # Spanish and Portuguese
    "avda dra ej núm pág págs p.ej profa sra sras srta ud uds exmo exma "
    # Italian
    "avv dott ecc pag pagg sig sigg "
    # Dutch
    "bijv blz dhr drs d.w.z e.a enz i.p.v m.b.t mevr t.o.v "
    # Polish
    "godz hab inż itd itp m.in mgr mld mln św tys tzn tzw ul zob "
    # Russian
    "акад вв гг гл др им млн млрд напр н.э пл просп проф рис руб см ср ст стр табл т.д т.е т.к т.п тыс ул".split()
)
# Before a number, and words otherwise.
_BEFORE_NUMBER = frozenset("abs art cap chap env kap pos poz rys sec str tab".split())
_NUMBER = re.compile(r"\s+(?:\d|[IVXLC]+\b)")
# After the ordinal number of a day or century.
_GERMAN_ORDINAL = re.compile(
    r"\s+(?:Jan(?:uar|\.)|Feb(?:ruar|\.)|März|Mai|Juni|Juli|Okt(?:ober|\.)|Dez(?:ember|\.)|Jahrhunderts?\b|Jh\.)"
)
# Of "z. B.", "т. е." or "д. 5".
_AFTER_INITIAL = re.compile(r"\s+(?:\w\.|\d)")
_DASHES = "—–"
_LONGEST_ABBREVIATION = 64


def is_abbreviation(text: str, word: str, dot: int) -> bool:
    """Return whether the word before the full stop at dot is an abbreviation of these languages, or a German ordinal.

    "EE. UU." and streets in "-str." are known too.
    """
    if word.isdigit():
        return len(word) <= 2 and _GERMAN_ORDINAL.match(text, dot + 1) is not None
    lower = word.lower()
    lower = lower[max(map(lower.rfind, "'’")) + 1 :]
    if not lower:
        return False
    if lower in _BEFORE_NUMBER or (lower.endswith("str") and word[0].isupper()):
        return _NUMBER.match(text, dot + 1) is not None
    if word.isupper() and len(word) > 1:
        return word == "EE" and text.startswith("UU", dot + 2)
    return lower in _ABBREVIATIONS


def split_in_languages(text: str) -> list[Span]:
    """Split a text in English or another of these languages into sentences: ranges without outer whitespace."""
    starts = [start for begin in sentence_starts(text)[1:] if (start := _start(text, begin)) is not None]
    if not text.isascii():
        starts = sorted({*starts, *(mark.end() for mark in _ENDS_WITHOUT_SPACE.finditer(text))})
    pieces = ((begin, text[begin:end]) for begin, end in itertools.pairwise([0, *starts, len(text)]))
    return [without_whitespace(begin, piece) for begin, piece in pieces if has_visible(piece)]


def _start(text: str, begin: int) -> int | None:
    """Return where the sentence that was found here begins; None where the one before goes on.

    It goes on behind an abbreviation, with a small letter, and with a dash. An opening quote belongs to what it opens.
    """
    end = begin
    while text[end - 1].isspace():
        end -= 1
    if text[end - 1] in OPENERS:
        return end - 1
    if text[begin].islower() or text[begin] in _DASHES:
        return None
    words = text[max(0, end - 1 - _LONGEST_ABBREVIATION) : end - 1].split()
    if text[end - 1] != "." or not words:
        return begin
    word = words[-1].lstrip("(\"'[“‘„«")
    is_first = len(word) == 1 and _AFTER_INITIAL.match(text, end) is not None
    return None if is_first or is_abbreviation(text, word, end - 1) else begin
