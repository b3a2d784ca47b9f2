"""The normal form of texts for lexical search, and texts of files without marks of the typesetter.

Ranges are listed here, since the form of an index must not change with the Unicode tables of a Python or a library.
Decision 013 says why it is this form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, groupby
from typing import Literal
from unicodedata import category, combining, normalize

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
