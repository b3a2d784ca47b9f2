"""Which snippet says most of a question, where a framework made the views and the index does not know their spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mvindex.lexical.tokenizer import Lexical, tokenize
from mvindex.records import Doubles, Hit
from mvindex_connectors.frameworks.citations import kept

_K1 = 1.2


def worded(question: str, hits: Sequence[Hit], kind: Lexical) -> tuple[Hit, ...]:
    """The hits of a search by words, the snippet with most of the question's words as the winner of each.

    A word counts the more, the fewer of these hits' snippets have it. Hits without kept spans stay as they are.
    """
    spans = [kept(hit.metadata).get("spans", ()) for hit in hits]
    texts = [hit.text[begin:end] for hit, own in zip(hits, spans, strict=True) for begin, end in own]
    if not texts:
        return tuple(hits)
    parts = np.split(_said(question, texts, kind), np.cumsum([len(own) for own in spans])[:-1])
    return tuple(
        replace(hit, slot=int(np.argmax(part))) if len(part) else hit for hit, part in zip(hits, parts, strict=True)
    )


def _said(question: str, texts: Sequence[str], kind: Lexical) -> Doubles:
    """How much of the question each text says: the sum of ln(1 + texts / texts with the word) f / (f + k1)."""
    found, asked = tokenize(texts, kind), set(tokenize([question], kind).terms)
    total = np.zeros(len(texts))
    for place, word in enumerate(found.terms):
        if word in asked:
            at = slice(found.starts[place], found.starts[place + 1])
            counts = found.counts[at]
            total[found.texts[at]] += np.log1p(len(texts) / len(counts)) * counts / (counts + _K1)
    return total
