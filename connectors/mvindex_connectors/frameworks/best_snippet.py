"""The snippet that answers a lexical query best, where a framework made the views and the index lacks their spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mvindex.records import Doubles, Hit
from mvindex.store.lexical.tokenizer import Lexical, tokenize, tokenize_query
from mvindex_connectors.frameworks.citations import stored_fields

# BM25's saturation of term counts.
_K1 = 1.2


def choose_best_snippets(query: str, hits: Sequence[Hit], tokenizer: Lexical) -> tuple[Hit, ...]:
    """Return the hits of a lexical search, each with the slot of the snippet that scores best for the query's terms.

    The fewer of these hits' snippets have a term, the more it counts. Hits without stored spans stay as they are.
    """
    spans = [stored_fields(hit.metadata).get("spans", ()) for hit in hits]
    texts = [hit.text[begin:end] for hit, own in zip(hits, spans, strict=True) for begin, end in own]
    if not texts:
        return tuple(hits)
    parts = np.split(_snippet_scores(query, texts, tokenizer), np.cumsum([len(own) for own in spans])[:-1])
    return tuple(
        replace(hit, slot=int(np.argmax(part))) if len(part) else hit for hit, part in zip(hits, parts, strict=True)
    )


def _snippet_scores(query: str, texts: Sequence[str], tokenizer: Lexical) -> Doubles:
    """Return for each text the sum over the query's terms of ln(1 + texts / texts with the term) f / (f + k1)."""
    tokens, terms = tokenize(texts, tokenizer), set(tokenize_query(query, tokenizer).hashes.tolist())
    scores = np.zeros(len(texts))
    for row, term in enumerate(tokens.hashes.tolist()):
        if term in terms:
            at = slice(tokens.starts[row], tokens.starts[row + 1])
            counts = tokens.counts[at]
            scores[tokens.texts[at]] += np.log1p(len(texts) / len(counts)) * counts / (counts + _K1)
    return scores
