"""The options of a search, each written down once: command line, HTTP and the docs show what stands here.

Imports nothing heavy, since the help of every command reads it.
"""

from __future__ import annotations

from typing import NamedTuple


class SearchFlag(NamedTuple):
    """One option of a search.

    Attributes:
        name: As search() takes it; a command takes it with dashes.
        kind: The type, as the docs name it.
        help: What it does, one or two sentences.
        heading: The heading under which help and docs list it.
        choices: The values that it takes, where these are names.
        default: What holds where it is not given, as the docs name it.

    """

    name: str
    kind: str
    help: str
    heading: str
    choices: tuple[str, ...] = ()
    default: str = "none"


_SEARCH, _HYBRID, _RERANK = "Search", "Hybrid search", "Reranking"

SEARCH_FLAGS: dict[str, SearchFlag] = {
    flag.name: flag
    for flag in (
        SearchFlag("top_k", "whole number", "Return so many documents.", _SEARCH, default="10"),
        SearchFlag(
            "offset",
            "whole number",
            "Leave out so many documents at the head of the ranking: page n of 10 has offset 10 (n - 1).",
            _SEARCH,
            default="0",
        ),
        SearchFlag(
            "cursor",
            "text",
            'Go on behind the documents that were shown: the next of the last page, "" for the first one '
            "(docs/how-to/ask-more.md).",
            _SEARCH,
        ),
        SearchFlag(
            "like",
            "id",
            "Search for what is near to this document, in place of a query (docs/how-to/ask-more.md).",
            _SEARCH,
        ),
        SearchFlag("positives", "ids", "The same of several documents, near to any of them.", _SEARCH),
        SearchFlag(
            "negatives", "ids", "Leave out what is nearer to one of these documents than to the positives.", _SEARCH
        ),
        SearchFlag(
            "filter",
            "conditions",
            "Keep documents whose metadata meet conditions: 'year >= 1990 and tags contains oil', or JSON, "
            '\'{"year": {"gte": 1990}}\'.',
            _SEARCH,
            default="all documents",
        ),
        SearchFlag(
            "scoring",
            "name",
            "Score a document by its best view (max), or by the softmax mean over all its views (drpq).",
            _SEARCH,
            ("max", "drpq"),
            "max",
        ),
        SearchFlag(
            "temperature",
            "number above 0",
            "Divide view scores by this in the softmax of drpq (default: that of the index).",
            _SEARCH,
            default="the index's",
        ),
        SearchFlag(
            "candidates",
            "whole number",
            "Look at so many view hits for drpq; only what they prove is certified.",
            _SEARCH,
            default="as many as the proof needs",
        ),
        SearchFlag("exact", "flag", "Return certified results, whatever engine is active.", _SEARCH, default="false"),
        SearchFlag(
            "mode",
            "name",
            "Search by views (dense), by terms (lexical, BM25) or by both (hybrid). auto is hybrid where the index "
            "has terms, else dense (docs/how-to/hybrid.md).",
            _SEARCH,
            ("auto", "dense", "lexical", "hybrid"),
            "auto",
        ),
        SearchFlag(
            "fields",
            "names",
            "Give hits only these of their fields; without the text there is no snippet and no citation.",
            _SEARCH,
            ("text", "title", "metadata"),
            "all",
        ),
        SearchFlag(
            "citations", "whole number", "Quote so many sentences of each hit, distinct, the best first.", _SEARCH
        ),
        SearchFlag("context", "whole number", "Quote so many sentences around each of these.", _SEARCH, default="0"),
        SearchFlag(
            "max_chars", "whole number", "Quote up to so many characters of a hit, cut between sentences.", _SEARCH
        ),
        SearchFlag(
            "max_tokens",
            "whole number",
            "Quote up to about so many tokens of a language model, counted rather too high than too low.",
            _SEARCH,
        ),
        SearchFlag(
            "diversity",
            "number from 0 to 1",
            "Order by relevance less likeness to the hits before (MMR), near-duplicates last; 1 is likeness alone.",
            _SEARCH,
        ),
        SearchFlag(
            "min_confidence",
            "number from 0 to 1",
            "Leave out hits of a lower confidence, the estimated probability that a hit answers.",
            _SEARCH,
        ),
        SearchFlag(
            "text",
            "text, or texts",
            "Search the terms of this text, and cite for it: with vectors, or in place of the query.",
            _SEARCH,
            default="the query",
        ),
        SearchFlag(
            "fusion",
            "name",
            "Fuse the scores of hybrid search by zscore, minmax or rrf (default: as tuned, else zscore).",
            _HYBRID,
            ("zscore", "minmax", "rrf"),
            "as tuned, else zscore",
        ),
        SearchFlag(
            "weights",
            "two numbers",
            "Weigh the dense and the lexical score of hybrid search by these (default: as tuned, or 1,1).",
            _HYBRID,
            default="as tuned, else 1, 1",
        ),
        SearchFlag(
            "operators",
            "flag",
            'Require "quoted phrases" and +words, exclude -words. Without this option these signs mean nothing.',
            _HYBRID,
            default="false",
        ),
        SearchFlag("rerank", "checkpoint", "Rerank the hits by a cross-encoder: a directory or a hub id.", _RERANK),
        SearchFlag(
            "rerank_on",
            "name",
            "Let it read the snippet (default) or the text of each hit.",
            _RERANK,
            ("snippet", "text"),
            "snippet",
        ),
        SearchFlag(
            "rerank_depth",
            "whole number",
            "Rerank so many documents (default: 50, or --top-k if larger).",
            _RERANK,
            default="50, or top_k if larger",
        ),
    )
}
