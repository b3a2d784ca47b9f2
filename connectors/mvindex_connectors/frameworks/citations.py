"""The citation that a returned document carries, so that an answer can quote a sentence instead of a whole document."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex import records
from mvindex.records import Doubles, Floats, Hit, SearchResult, Span
from mvindex.store.lexical.tokenizer import Lexical, tokenize, tokenize_query

if TYPE_CHECKING:
    from mvindex_connectors.frameworks.connection import AsyncIndexAPI

# The one key of a document's metadata that is ours. A returned document has its citation there; a stored document has
# there the fields of a framework's document that an mvindex.Document lacks. Users' own keys cannot collide with them.
HIT_KEY = "mvindex"
_NAMES = frozenset(
    {
        "snippet",
        "snippet_span",
        "view",
        "score",
        "exact",
        "title",
        "view_scores",
        "citation",
        "citations",
        "mode",
        "dense_score",
        "confidence",
    }
)
# BM25's saturation of term counts.
_K1 = 1.2


def citation(hit: Hit, exact: bool) -> dict[str, Any]:
    """Return the citation of a hit, as JSON.

    Args:
        hit: The hit.
        exact: Whether the result is certified.

    Returns:
        citation: the part of the text that most likely answers (text, start, end, why); None where the text of the
        query is unknown. snippet and snippet_span ([begin, end) in the text): those of the citation, and without one of
        the winning view; None where neither is known, and no span for a title. view (the slot), score, dense_score
        (see dense_score()), exact, and title where there is one. citations, where the search asks for several.
        confidence, where the index has a calibration.

    """
    cited = hit.citation
    span = winning_span(hit) if cited is None else (cited.start, cited.end)
    shown: dict[str, Any] = {
        "citation": None if cited is None else cited.as_json(),
        "snippet": winning_text(hit) if cited is None else cited.text,
        "snippet_span": None if span is None else list(span),
        "view": hit.slot,
        "score": hit.score,
        "dense_score": dense_score(hit),
        "exact": exact,
    }
    if hit.confidence is not None:
        shown["confidence"] = hit.confidence
    if hit.citations:
        shown["citations"] = [each.as_json() for each in hit.citations]
    return shown | ({"title": hit.title} if hit.title else {})


async def citations(api: AsyncIndexAPI, vector: Floats | None, result: SearchResult) -> list[dict[str, Any]]:
    """Return the citation of each hit, with the mode of the search; given a vector, with every view's score as well.

    A document that was deleted since the search has no view scores.
    """
    cited = [citation(hit, result.exact) | {"mode": result.mode} for hit in result.hits]
    if vector is not None and cited:
        explained = await api.explain_all(vector, [hit.id for hit in result.hits])
        for hit, one in zip(result.hits, cited, strict=True):
            one["view_scores"] = [{"view": view.slot, "score": view.score} for view in explained.get(hit.id, ())]
    return cited


def dense_score(hit: Hit) -> float | None:
    """Return the score of a hit by its views, be the search dense, hybrid or reranked; None after a lexical one."""
    if not hit.components:
        return hit.score
    return next((part.score for part in hit.components if part.name == "dense"), None)


class CitedMetadata(dict[str, Any]):
    """A returned document's metadata, compared without the citation, which differs from query to query.

    Frameworks compare documents to tell whether they are the same: LangChain's MultiQueryRetriever drops what two
    queries found twice, and the frameworks' suites compare found documents with added ones.
    """

    __hash__ = None  # as of any dict

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return NotImplemented
        return own_metadata(self) == own_metadata(other)

    def __ne__(self, other: object) -> bool:
        # dict has its own, which would compare every key.
        return not self == other


def own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's metadata, as it was added."""
    return {name: value for name, value in metadata.items() if name != HIT_KEY}


def stored_fields(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields that are stored under our key."""
    value = metadata.get(HIT_KEY)
    return value if isinstance(value, Mapping) else {}


def stored_spans(hit: Hit) -> list[Span]:
    """Return the spans of the views that a framework's store made; none where another program wrote something there."""
    spans = stored_fields(hit.metadata).get("spans")
    try:
        return [(operator.index(begin), operator.index(end)) for begin, end in spans or ()]
    except (TypeError, ValueError):
        return []


def cited_title(metadata: Mapping[str, Any]) -> str:
    """Return the title in a citation: frameworks have no field for it, and a document that is added again keeps it."""
    title = stored_fields(metadata).get("title")
    return title if isinstance(title, str) else ""


def stored_metadata(metadata: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata to store: the user's, with `fields` under our key in place of an old citation.

    Raises:
        ValueError: When the user's metadata has another value than a citation under our key.

    """
    found = metadata.get(HIT_KEY)
    if found is not None and not (isinstance(found, Mapping) and found.keys() <= _NAMES):
        raise ValueError(f"metadata key {HIT_KEY!r}: expected a citation, got {found!r:.80}. Rename the key")
    return own_metadata(metadata) | ({HIT_KEY: dict(fields)} if fields else {})


def winning_text(hit: Hit) -> str | None:
    """Return the text that the winning view stands for, be it the title; None where it is unknown."""
    span = winning_span(hit)
    return records.winning_text(hit) if span is None else hit.text[span[0] : span[1]]


def winning_span(hit: Hit) -> Span | None:
    """Return the span of the winning view, or the one stored by a framework's store that made the views itself."""
    spans = stored_spans(hit)
    return hit.span if hit.span is not None or hit.slot >= len(spans) else spans[hit.slot]


def choose_best_snippets(query: str, hits: Sequence[Hit], tokenizer: Lexical) -> tuple[Hit, ...]:
    """Return the hits of a lexical search, each with the slot of the snippet that scores best for the query's terms.

    The fewer of these hits' snippets have a term, the more it counts. Hits without stored spans stay as they are.
    """
    spans = [stored_spans(hit) for hit in hits]
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
