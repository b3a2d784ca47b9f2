"""Hits: documents and views as they are shown, the parts of views in a score, and citations."""

from __future__ import annotations

import gc
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mvindex.corpus.text.citation import Citer, Quoting, ScoredViews, quotes
from mvindex.kernels.score import Aggregate, Scoring, view_scores, view_weights
from mvindex.records import (
    ALL_FIELDS,
    Citation,
    Cite,
    Component,
    Document,
    DocumentViews,
    Field,
    Floats,
    Hit,
    SearchResult,
    ViewScore,
    span_and_snippet,
    undecoded_hit,
    undecoded_hit_without_text,
)
from mvindex.search.confidence import Estimator, make_estimator
from mvindex.search.fusion import Mode
from mvindex.search.hybrid import Ranked
from mvindex.search.parts import Parts
from mvindex.search.plan import Plan
from mvindex.search.ranking import Pairs, Ranking
from mvindex.search.request import Queries
from mvindex.search.result_merge import ShardResult
from mvindex.search.terms import LexicalSearch
from mvindex.store.reader import StoredDocument

# Hits of a batch for which Python would look for cycles more than once.
_MANY_HITS = 1000


def score_views(
    documents: Mapping[str, tuple[StoredDocument, Floats]], query: Floats, scoring: Scoring
) -> dict[str, list[ViewScore]]:
    """Return every view of the documents with its score and weight, best first, by document id.

    Args:
        documents: Each document with its views, (k, d) as stored, by id.
        query: (d,) float32.
        scoring: How the views of a document make its score.
    """
    if not documents:
        return {}
    scores = view_scores(np.concatenate([views for _, views in documents.values()]), query)
    ends = np.cumsum([len(views) for _, views in documents.values()])
    parts = zip(documents.items(), np.split(scores, ends[:-1]), strict=True)
    return {doc_id: _weighted(stored, part, scoring) for (doc_id, (stored, _)), part in parts}


def _weighted(stored: StoredDocument, scores: Floats, scoring: Scoring) -> list[ViewScore]:
    """Return every view of a document with its score and its weight in the document's score, best first.

    Args:
        stored: The document.
        scores: (k,) of its views.
        scoring: By best view the first view has all the weight.

    """
    order = np.lexsort((np.arange(len(scores)), -scores)).tolist()
    if scoring.aggregate is Aggregate.DRPQ:
        weights = view_weights(scores, scoring.temperature)
    else:
        weights = (np.arange(len(scores)) == order[0]).astype(np.float64)
    return [
        ViewScore(slot, float(scores[slot]), *span_and_snippet(stored, slot), float(weights[slot])) for slot in order
    ]


def views_of(stored: StoredDocument, vectors: Floats) -> DocumentViews:
    """Return the views of a stored document with what each stands for."""
    shown = [span_and_snippet(stored, slot) for slot in range(len(vectors))]
    spans, snippets = tuple(span for span, _ in shown), tuple(snippet for _, snippet in shown)
    return DocumentViews(stored.id, vectors.astype(np.float32), spans, snippets)


def document_of(stored: StoredDocument) -> Document:
    """Return the document as it was added."""
    return Document(stored.id, stored.text, stored.title, stored.metadata)


def make_results(
    ranked: Sequence[Ranked], parts: Parts, terms: LexicalSearch | None, queries: Queries, plan: Plan
) -> list[SearchResult]:
    """Return the result of each query: its documents, with their fields, citations and components.

    terms: for a lexical search, which shows the view of each document whose span matches the text best.

    Python looks for cycles after some hundred new objects, and after thousands through all objects of the process: a
    third of the time of a batch with many hits. It does so once when they are made.
    """
    is_paused = sum(len(each.ranking.rows) for each in ranked) >= _MANY_HITS and gc.isenabled()
    try:
        if is_paused:
            gc.disable()
        return _made_results(ranked, parts, terms, queries, plan)
    finally:
        if is_paused:
            gc.enable()


def _made_results(
    ranked: Sequence[Ranked], parts: Parts, terms: LexicalSearch | None, queries: Queries, plan: Plan
) -> list[SearchResult]:
    rankings = [each.ranking for each in ranked]
    is_lexical = plan.mode is Mode.LEXICAL
    every = rankings[0].rows if len(rankings) == 1 else np.concatenate([ranking.rows for ranking in rankings])
    stored = parts.documents(every, ALL_FIELDS if is_lexical else plan.fields)
    if is_lexical and terms is not None and queries.texts is not None:
        rankings = [
            ranking._replace(slots=terms.slots(text, [stored[row] for row in ranking.rows.tolist()]))
            for text, ranking in zip(queries.texts, rankings, strict=True)
        ]
        stored = {row: document.only(plan.fields) for row, document in stored.items()}
    estimators: Sequence[Estimator | None] = [None] * len(rankings)
    if plan.model is not None:
        estimators = [make_estimator(plan.mode, plan.model, each.evidence) for each in ranked]
    cites: Sequence[Sequence[Cite] | None] = [None] * len(rankings)
    if queries.texts is not None and Field.TEXT in plan.fields:
        cites = _cites(rankings, parts, queries, plan, stored)
    results, mode = list[SearchResult](), plan.mode.value
    for ranking, (_, components, _), cited, estimate in zip(rankings, ranked, cites, estimators, strict=True):
        hits = hits_of(ranking, stored, plan.fields, components, cited, estimate)
        exact, short_by, rounds = ranking.exact, ranking.short_by, ranking.rounds
        if plan.shard is None:
            results.append(SearchResult(hits, exact, short_by, rounds, mode=mode))
            continue
        shard_result = ShardResult(
            hits,
            exact,
            short_by,
            rounds,
            mode=mode,
            ordinals=tuple(parts.ordinals(ranking.rows).tolist()),
            num_allowed=parts.num_allowed,
            view_hits=ranking.view_hits,
        )
        results.append(shard_result)
    return results


def _cites(
    rankings: Sequence[Ranking], parts: Parts, queries: Queries, plan: Plan, stored: Mapping[int, StoredDocument]
) -> list[list[Cite]]:
    """Return what chooses the citation of each hit of each query: its text, and its view scores where it has any."""
    texts = queries.texts or ()
    if plan.mode is Mode.LEXICAL:
        return [
            cites_of(text, ranking.rows.tolist(), stored, None, plan.quoting)
            for text, ranking in zip(texts, rankings, strict=True)
        ]
    if queries.combine is not None:
        return [_group_cites(rankings[0], parts, queries, plan, stored)]
    counts = [len(ranking.rows) for ranking in rankings]
    rows = np.concatenate([ranking.rows for ranking in rankings])
    scores = parts.view_scores(queries.vectors, Pairs(rows, np.repeat(np.arange(len(rankings)), counts)))
    ends = np.cumsum(counts).tolist()
    return [
        cites_of(text, ranking.rows.tolist(), stored, scores[end - count : end], plan.quoting)
        for text, ranking, count, end in zip(texts, rankings, counts, ends, strict=True)
    ]


def _group_cites(
    ranking: Ranking, parts: Parts, queries: Queries, plan: Plan, stored: Mapping[int, StoredDocument]
) -> list[Cite]:
    """Return what chooses the citation of each hit: by the vector that has the best view score, and its text."""
    rows, texts, num_vectors = ranking.rows.tolist(), queries.texts or (), len(queries.vectors)
    if not rows:
        return []
    pairs = Pairs(np.tile(ranking.rows, num_vectors), np.repeat(np.arange(num_vectors), len(rows)))
    scores = parts.view_scores(queries.vectors, pairs)
    best = np.array([each.max() for each in scores]).reshape(num_vectors, len(rows)).argmax(axis=0).tolist()
    return [
        cites_of(texts[winner], [row], stored, [scores[winner * len(rows) + place]], plan.quoting)[0]
        for place, (row, winner) in enumerate(zip(rows, best, strict=True))
    ]


def hits_of(  # noqa: PLR0913 - a ranking, and what hits are made of
    ranking: Ranking,
    stored: Mapping[int, StoredDocument],
    fields: Collection[Field] = ALL_FIELDS,
    components: Sequence[tuple[Component, ...]] | None = None,
    cites: Sequence[Cite] | None = None,
    estimate: Estimator | None = None,
) -> tuple[Hit, ...]:
    """Return the hits of a ranking.

    Args:
        ranking: Document rows, scores and slots.
        stored: The documents, by row, with the fields.
        fields: What hits carry of them.
        components: Those of each hit; None for a dense search.
        cites: What chooses the citation of each hit; None for hits without one.
        estimate: What estimates the confidence of the hits; None for hits without one.

    """
    rows, scores, slots = ranking.rows.tolist(), ranking.scores.tolist(), ranking.slots.tolist()
    parts = [()] * len(rows) if components is None else components
    choices: Sequence[Cite | None] = [None] * len(rows) if cites is None else cites
    columns = zip(rows, scores, slots, parts, choices, strict=True)
    make = undecoded_hit if Field.TEXT in fields else undecoded_hit_without_text
    return tuple([make(stored[row], score, slot, part, cite, estimate) for row, score, slot, part, cite in columns])


def cites_of(
    text: str,
    rows: Sequence[int],
    stored: Mapping[int, StoredDocument],
    scores: Sequence[Floats] | None,
    quoting: Quoting | None = None,
) -> list[Cite]:
    """Return what chooses the citation of each hit of one query.

    Args:
        text: The query.
        rows: Document rows of the hits.
        stored: The documents, by row, with their texts.
        scores: For each hit the scores of its views, (k,); None for a search without views.
        quoting: How much is quoted of each hit; None for its citation alone.

    """
    citer = Citer(text)
    known: Sequence[Floats | None] = [None] * len(rows) if scores is None else scores
    if quoting is not None:
        return [_Quotes(citer, stored[row], each, quoting) for row, each in zip(rows, known, strict=True)]
    return [partial(_cite, citer, stored[row], each) for row, each in zip(rows, known, strict=True)]


@dataclass(frozen=True, slots=True)
class _Quotes:
    """Chooses the citation of a hit when it is called, and several by quotes()."""

    citer: Citer
    stored: StoredDocument
    scores: Floats | None
    quoting: Quoting

    def __call__(self) -> Citation | None:
        return _cite(self.citer, self.stored, self.scores)

    def quotes(self) -> tuple[Citation, ...]:
        """Return the citations."""
        views = None if self.scores is None else ScoredViews(self.stored.spans, self.scores)
        quoted = quotes(self.citer, self.stored.text, self.stored.title, views, self.quoting)
        return tuple(_placed(each, self.stored) for each in quoted)


def _cite(citer: Citer, stored: StoredDocument, scores: Floats | None) -> Citation | None:
    views = None if scores is None else ScoredViews(stored.spans, scores)
    cited = citer.cite(stored.text, stored.title, views)
    return None if cited is None else _placed(cited, stored)


def _placed(cited: Citation, stored: StoredDocument) -> Citation:
    """Return a citation with its place, as far as the document's metadata tell it; see Citation."""
    metadata = stored.metadata
    file, page, first = metadata.get("file"), metadata.get("page"), metadata.get("line")
    if not isinstance(file, str) and type(page) is not int and type(first) is not int:
        return cited
    line = first + stored.text.count("\n", 0, cited.start) if type(first) is int else None
    return replace(
        cited,
        file=file if isinstance(file, str) else None,
        page=page if type(page) is int else None,
        line=line,
        end_line=None if line is None else line + cited.text.count("\n"),
    )
