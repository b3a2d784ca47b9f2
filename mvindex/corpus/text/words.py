"""Characters and words: scripts without spaces, the one normal form of a text, and the words of a text.

Ranges are listed here, since the form of an index must not change with the Unicode tables of a Python or a library.
Decision 013 says why it is this form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, groupby, pairwise
from typing import Any, Literal
from unicodedata import category, combining, normalize

_CHARS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Chinese characters
)
# Korean has spaces, but its words end in particles: most of a word's pairs are those of its stem.
_HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb\uffa1-\uffdc"
# A letter of a script that is written without spaces between words.
UNSPACED = re.compile(f"[{_CHARS}]")
# A letter of a script whose words are found by pairs.
PAIRED = re.compile(f"[{_CHARS}{_HANGUL}]")
_RUN = re.compile(f"[{_CHARS}{_HANGUL}]+")
_STEP = 1 << 14
# A letter with the marks that follow it, which may be vowels.
_LETTER = re.compile(r"\w\W*")


def letters_of(run: str) -> Sequence[str]:
    """Return the letters of a run of such a script, with their marks."""
    if run.isalnum():
        return [letter for letter in run]  # noqa: C416 - list() lets no other thread run, and a run may be a megabyte
    return [letter[0] for letter in _LETTER.finditer(run)]


def pairs_of(run: str) -> Sequence[str]:
    """Return each two letters that follow each other in a run, or its only one."""
    letters = letters_of(run)
    return _pairs(letters) if len(letters) > 1 else letters


def pairs_and_letters(run: str) -> Sequence[str]:
    """Return each two letters that follow each other in a run, and each letter, with its marks and without."""
    letters = letters_of(run)
    marked = [letter[0] for letter in letters if len(letter) > 1]
    return [*_pairs(letters), *letters, *marked]


def _pairs(letters: Sequence[str]) -> list[str]:
    return [first + second for first, second in pairwise(letters)]


def replace_runs(text: str, split: Callable[[str], Sequence[str]]) -> str:
    """Return the text with each run of such a script in place of what it is split into, between spaces."""
    if text.isascii() or not PAIRED.search(text):
        return text
    return _RUN.sub(lambda run: f" {_join(split(run[0]))} ", text)


def _join(words: Sequence[str]) -> str:
    """Join the words by spaces, in steps: other threads run between them."""
    return " ".join([" ".join(words[at : at + _STEP]) for at in range(0, len(words), _STEP)])


# Unicode's Default_Ignorable_Code_Point: soft hyphen, joiners, marks of direction, variation selectors, fillers.
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_ACCENTS = "\u0300-\u036f\u0483-\u0487\u0653-\u0655\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
# Signs that writers leave out or put in at will, of decomposed letters: composed ones would keep theirs.
_OPTIONAL = (
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew points
    "\u0610-\u061a\u0640\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
    "\u0711\u0730-\u074a\u08ca-\u08e1\u08e3-\u08ff"  # Arabic tatweel and vowel marks, Syriac points
    "\u093c\u09bc\u0a3c\u0abc\u0b3c\u0c3c\u0cbc"  # Indic nukta
)
_DROPPED = re.compile(f"(?<=[a-z])[{_ACCENTS}{_OPTIONAL}]+|[{_OPTIONAL}]+")
# Marks that no letter was composed with.
_LOOSE = re.compile(f"[{_ACCENTS}]+")
# Signs that stand at a word and decompose into others, such as those of trade marks, units and "No.".
_SIGN = re.compile(
    "[\u2100\u2101\u2103\u2105\u2106\u2109\u2116\u2120-\u2122\u213b\u3250\u32cc-\u32cf\u3371-\u33df\ufdfa-\ufdfc]"
)
# Letters and signs that are their own normal form, whatever follows, of the scripts that most texts are in; a mark
# changes at most the letter before it.
_PLAIN = (
    "\0-\x7f\u03b1-\u03c1\u03c3-\u03c9\u0430-\u045f\u05d0-\u05ea\u0621-\u063a\u0641-\u064a\u0e01-\u0e30\u0e32\u0e40-\u0e46"
    "\u2013\u2014\u2018-\u201e\u2022\u3001\u3002\u300c-\u300f\u3041-\u3094\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
)
# Ligatures of Latin letters; marks of where a word may be divided, or not.
_LIGATURES = ("ff", "fi", "fl", "ffi", "ffl", "st", "st")
_UNSET: dict[int, str | None] = {0x00AD: None, 0x2060: None, 0xFEFF: None, **dict(enumerate(_LIGATURES, 0xFB00))}
# Thai, Lao, Burmese and Khmer separate words by it.
_NO_SPACE = re.compile("\u200b(?![\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff])")
_OTHERS = re.compile(f"[{_PLAIN}]?[^{_PLAIN}]+")
# More in a row of what may be marks than a text in Unicode's Stream-Safe Text Format (UAX 15) has. Marks are among
# the characters that are no letters, and the half-width voice marks of Katakana become such.
_LONG_RUN = re.compile("(?:\\W|[\uff9e\uff9f]){31,}")
# Of so many characters the square is small.
_FEW_CHARS = 64
_PIECE_CHARS = 1 << 13
_KEPT_CHARS = 64


def unset(text: str) -> str:
    """Return the text of a file without soft hyphens and characters of no width, ligatures as their letters."""
    return text if text.isascii() else _NO_SPACE.sub("", text).translate(_UNSET)


def normal_form(text: str) -> str:
    """Return the text as lexical search compares it.

    NFKC with full case folding, without characters that are not seen, without accents of Latin letters, Arabic and
    Hebrew vowel marks, tatweel and Indic nukta. ASCII letters keep their case, which the tokenizer folds.
    """
    return text if text.isascii() else "".join(_OTHERS.sub(_normalise_match, piece) for piece in _pieces(text))


def _pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces whose forms together are that of the text: one substitution lets no other thread run."""
    begin = 0
    while len(text) - begin > _PIECE_CHARS:
        end = next((at for at in range(begin + _PIECE_CHARS, len(text)) if _is_apart(text[at])), len(text))
        yield text[begin:end]
        begin = end
    yield text[begin:]


def _is_apart(char: str) -> bool:
    """Return whether a character has a normal form of its own after any other: no mark, nor the rest of a syllable."""
    first = normalize("NFKD", char)[0]
    return category(first)[0] not in "MC" and not "\u1160" <= first <= "\u11ff"


def _normalise_match(part: re.Match[str]) -> str:
    # Long ones are hardly met again, and would take the memory.
    return (normalise if len(part[0]) <= _KEPT_CHARS else normalise.__wrapped__)(part[0])


@lru_cache(1 << 14)
def normalise(text: str) -> str:
    """Return what normal_form() does, in lower case, of a text that need not be read letter by letter."""
    form_of = normalize if len(text) <= _FEW_CHARS else _normalised
    seen = _IGNORABLE.sub("", form_of("NFKD", _SIGN.sub(r" \g<0> ", text)))
    folded = _DROPPED.sub("", form_of("NFKD", seen.casefold()))
    return form_of("NFC", _LOOSE.sub("", form_of("NFC", folded)))


def _normalised(form: Literal["NFC", "NFKD"], text: str) -> str:
    """Return what normalize() does, in time that does not grow with the square of the marks in a row.

    normalize() sorts marks by insertion, and only reads those that are in order.
    """
    parts: Literal["NFD", "NFKD"] = "NFD" if form == "NFC" else "NFKD"
    return normalize(form, _LONG_RUN.sub(lambda run: _in_order(run[0], parts), text))


def _in_order(run: str, form: Literal["NFD", "NFKD"]) -> str:
    """Return what is to be normalised decomposed, marks in a row sorted by combining class, equal ones as they were."""
    decomposed = {char: normalize(form, char) for char in set(run)}
    if not any(map(combining, "".join(decomposed.values()))):
        return run
    groups = groupby("".join(map(decomposed.__getitem__, run)), lambda char: combining(char) > 0)
    return "".join(
        chain.from_iterable(sorted(chars, key=combining) if are_marks else chars for are_marks, chars in groups)
    )


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
