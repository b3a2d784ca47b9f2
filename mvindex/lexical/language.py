"""The language of texts, as far as it decides how they are split into terms."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from mvindex.lexical.tokenizer import Lexical

# In place of a tokenizer: the one that suits the first texts.
AUTO = "auto"
# In place of a tokenizer: no lexical search.
NONE = "none"
# Texts that decide, and characters of each.
JUDGED_TEXTS = 256
_JUDGED_CHARS = 2000
_WORD = re.compile(r"[^\W\d_]+")
# Frequent in English, rare in other languages that are written in Latin letters.
_ENGLISH = frozenset("the of and to that for with by from which this are it as at be his were has their".split())
# English prose has some 25 to 35 % of these, lists and titles 10 to 20 %; Dutch and German have 1 to 4 %.
_LEAST_SHARE = 0.08


def detect_lexical(texts: Iterable[str]) -> Lexical:
    """Return ENGLISH where the first texts are English for the most part, else UNICODE, which suits every language."""
    num_words = num_english = 0
    for text in islice(texts, JUDGED_TEXTS):
        words = _WORD.findall(text[:_JUDGED_CHARS].lower())
        num_words += len(words)
        num_english += sum(word in _ENGLISH for word in words)
    return Lexical.ENGLISH if num_english > _LEAST_SHARE * num_words else Lexical.UNICODE
