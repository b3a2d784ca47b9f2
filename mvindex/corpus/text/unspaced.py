"""Scripts whose words are found by pairs of letters: Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

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
