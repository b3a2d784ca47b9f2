"""Scripts that are written without spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese."""

from __future__ import annotations

import re

_CHARS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Chinese characters
)
UNSPACED = re.compile(f"[{_CHARS}]")
_RUN = re.compile(f"[{_CHARS}]+")
# A letter with the marks that follow it, which may be vowels.
_LETTER = re.compile(r"\w\W*")


def pairs_of(run: str) -> list[str]:
    """Return each two letters that follow each other in a run of such a script, or its only one."""
    letters = _LETTER.findall(run)
    return ["".join(letters[at : at + 2]) for at in range(max(1, len(letters) - 1))]


def split_unspaced(text: str) -> str:
    """Return the text with each run of such a script in place of its pairs of letters, between spaces."""
    if text.isascii() or not UNSPACED.search(text):
        return text
    return _RUN.sub(lambda run: f" {' '.join(pairs_of(run[0]))} ", text)
