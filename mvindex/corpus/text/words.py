"""Words and terms of a text, to compare it with a question: English words without common endings."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

from mvindex.corpus.text.normal import normal_form
from mvindex.corpus.text.unspaced import PAIRED, pairs_of

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?(?:[.,][0-9]+)*")
# Where these or scripts that have marks of their own are in a text, its words are found by another pattern.
_MARKS = re.compile(
    "[\u00ad\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u0711-\u1cff\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20d0-\u20ff\u302a-\u302f\u3099\u309a"
    "\ua66f-\uabff\ufb1e\ufe00-\ufe2f\ufeff\U00010000-\U0010ffff]"
)
_SPECIAL = re.compile(f"[{_MARKS.pattern[1:-1]}{PAIRED.pattern[1:-1]}]")
# The longest words whose stems are kept.
_KEPT_WORD_CHARS = 64
# A text of a megabyte that is made of such parts has the same ones again and again.
SHORT_CHARS = 8
# Of these no answer is made: articles, pronouns, auxiliary verbs, question words.
COMMON = frozenset(
    "a an the of in on at to for by with from and or but as is are was were be been being do does did has have had it "
    "its this that these those he she they his her their them which who whom whose what when where why how many much "
    "there than then so such not no can could would should will may might must i you we s".split()
)
# Verbs with these are one name: "back up".
PARTICLES = frozenset(("up", "out", "off", "down", "over", "back"))
PHRASAL = re.compile(rf"\b[A-Za-z]{{2,20}} (?:{'|'.join(sorted(PARTICLES))})\b", re.IGNORECASE)
_SUFFIXES = (
    ("ational", 3), ("ization", 3), ("ation", 3), ("ment", 4), ("ness", 3), ("ingly", 3), ("edly", 3), ("ing", 3),
    ("ied", 2), ("ed", 3), ("ion", 4), ("er", 4), ("or", 4), ("ly", 3), ("al", 4), ("ive", 4), ("e", 3), ("y", 3),
)  # fmt: skip


@cache
def _word_with_marks() -> Any:
    """Return the pattern of words with marks, which are vowels in Hindi, and what is not seen, such as soft hyphens."""
    import regex  # few texts need it

    letters = r"[\p{L}\p{N}][\p{L}\p{N}\p{M}\p{Cf}]*"
    return regex.compile(rf"{letters}(?:['’]{letters})?(?:[.,][0-9]+)*")


def terms_of(text: str) -> tuple[list[str], list[str]]:
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
    if max(map(len, forms), default=0) <= _KEPT_WORD_CHARS:
        return words, list(map(_stem, forms))
    # Long ones are hardly met again, and would take the memory.
    return words, [(_stem if len(form) <= _KEPT_WORD_CHARS else _stem.__wrapped__)(form) for form in forms]


@lru_cache(1 << 14)
def terms_of_short(text: str) -> tuple[list[str], list[str]]:
    """Return what terms_of() does, of a text of at most SHORT_CHARS; the lists are not to be changed."""
    return terms_of(text)


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


COMMON_TERMS = frozenset(_stem(word) for word in COMMON)
