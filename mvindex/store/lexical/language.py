"""The language of texts, as far as it decides how they are split into terms."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from mvindex.corpus.text.words import PAIRED
from mvindex.store.lexical.tokenizer import Lexical

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
_LETTER = re.compile(r"[^\W\d_]")
# Pairs of letters do no harm to words, so that few such texts among others decide.
_LEAST_PAIRED = 0.05
# English prose has some 25 to 35 % of these, lists and titles 10 to 20 %; Dutch and German have 1 to 4 %.
_LEAST_SHARE = 0.08


def detect_lexical(texts: Iterable[str]) -> Lexical:
    """Return BIGRAMS where a part of the first texts is in scripts that are searched by pairs of letters.

    ENGLISH where most are English, else UNICODE, which suits every language.
    """
    num_words = num_english = num_letters = num_paired = 0
    for text in islice(texts, JUDGED_TEXTS):
        begin = text[:_JUDGED_CHARS]
        num_letters += len(_LETTER.findall(begin))
        num_paired += 0 if begin.isascii() else len(PAIRED.findall(begin))
        words = _WORD.findall(begin.lower())
        num_words += len(words)
        num_english += sum(word in _ENGLISH for word in words)
    if num_paired > _LEAST_PAIRED * num_letters:
        return Lexical.BIGRAMS
    return Lexical.ENGLISH if num_english > _LEAST_SHARE * num_words else Lexical.UNICODE
