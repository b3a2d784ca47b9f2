"""Search of served shards as one index: dense and lexical results are merged, hybrid ones fused from both lists.

Hybrid search takes three rounds: the terms of the queries are counted in all shards; each returns its candidates,
scored by these counts; and the best are asked for with their texts. Where one has changed meanwhile it begins again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mvindex.errors import DamagedIndex, StaleReader, StoreError
from mvindex.kernels.score import Aggregate
from mvindex.records import Field, Floats, Hit, SearchResult
from mvindex.retries import Retries
from mvindex.search.confidence import calibration_of, confident
from mvindex.search.diversity import search_diverse
from mvindex.search.fusion import Fusion, Mode, parse_fusion, parse_setting
from mvindex.search.like import search_like
from mvindex.search.plan import IndexState, Plan, make_plan, parse_operators
from mvindex.search.request import Queries, SearchRequest, ShardSearch, as_vectors
from mvindex.search.result_merge import (
    FusedRanking,
    QuestionModel,
    ShardResult,
    fuse_results,
    merge_results,
    which_cut_short,
    with_confidence,
)
from mvindex.search.terms import TermCounts, ceiling_of
from mvindex.store.lexical.tokenizer import Lexical, parse_lexical
from mvindex.v1 import search_pb2 as messages
from mvindex_connectors.remote.client import capabilities_of
from mvindex_connectors.remote.convert import counts_from, search_message, shard_result_from
from mvindex_connectors.remote.requests import renamed, split_queries, texts_message
from mvindex_connectors.remote.shard_calls import Attempt, ShardCall, ShardCalls

# How often a search begins again because documents change while it goes on.
_TRIES = 4


@dataclass(frozen=True, slots=True)
class _Sent:
    """Queries as they are sent to every shard.

    Attributes:
        request: The options, their mode chosen.
        queries: Vectors, texts of a lexical search, or one query group.
        terms: The text of each query without operators; None for a dense search.

    """

    request: SearchRequest
    queries: Queries
    terms: Sequence[str] | None

    def messages(self, shard: ShardSearch | None, **options: Any) -> Callable[[str], Any]:
        """Return what makes the message of all queries for one shard of several, with these other options."""
        return renamed(search_message("", replace(self.request, shard=shard, **options), self.queries))

    def some(self, numbers: Sequence[int]) -> _Sent:
        """Return those of the queries that have these numbers."""
        if len(numbers) == len(self.queries):
            return self
        rows, texts = self.queries.rows, self.queries.texts
        picked = rows[list(numbers)] if isinstance(rows, np.ndarray) else [rows[number] for number in numbers]
        queries = Queries(picked, None if texts is None else [texts[number] for number in numbers])
        terms = None if self.terms is None else [self.terms[number] for number in numbers]
        return replace(self, queries=queries, terms=terms)

    def one(self, number: int) -> _Sent:
        """Return one of the queries, its operators not read again."""
        if self.queries.combine is not None:
            return self
        terms = None if self.terms is None else self.terms[number : number + 1]
        return replace(self, queries=Queries(self.queries.rows[number : number + 1], terms), terms=terms)


class _Terms(NamedTuple):
    """The counts of terms of all shards, their fusion, and how they split texts."""

    counts: TermCounts
    fusion: Fusion
    kind: Lexical | None


class ShardedSearch:
    """Dense, lexical and hybrid search of served shards."""

    def __init__(
        self,
        calls: ShardCalls,
        encode: Callable[[Sequence[str], float], Floats],
        views: Callable[[Sequence[str]], Mapping[str, Floats]],
    ) -> None:
        """Take the shards.

        Args:
            calls: Calls to the shards.
            encode: Returns the vectors of texts before a deadline.
            views: Returns the stored views of the documents that exist, by id.

        """
        self._calls, self._encode, self._views = calls, encode, views

    def run(self, request: SearchRequest) -> list[SearchResult]:
        """Return a result for each query of the request."""
        results = self._ordered(request)
        return results if request.min_confidence is None else confident(results, request.min_confidence)

    def _ordered(self, request: SearchRequest) -> list[SearchResult]:
        """Return a result for each query of the request, with hits of any confidence."""
        if request.like is not None:
            return search_like(request.like, request, self._views, self.run, self._calls.where)
        if request.diversity is not None:
            return search_diverse(request, request.diversity, self._views, self._ordered)
        info, results = self._calls.first_info, list[SearchResult]()
        state = IndexState(
            where=self._calls.where,
            capabilities=capabilities_of(info),
            has_lexical=info.lexical is not None,
            temperature=info.temperature,
            # The shards' own is asked for with the counts of terms.
            fusion=Fusion(),
            calibration=calibration_of(info.confidence, info.encoder, self._calls.where),
        )
        for queries in (part for several in request.queries for part in split_queries(several)):
            is_group, deadline = queries.combine is not None, self._calls.deadline()
            plan = make_plan(request, state, has_text=queries.texts is not None, is_group=is_group)
            if len(queries):
                results += self._results(self._sent(request, queries, plan, deadline), plan, deadline)
        if request.cursor is not None:
            return request.cursor.pages(results, request, info.index_id or self._calls.where)
        return results

    def _sent(self, request: SearchRequest, queries: Queries, plan: Plan, deadline: float) -> _Sent:
        """Return the queries as they are sent: texts are encoded once, but for those of a group."""
        is_drpq = plan.scoring.aggregate is Aggregate.DRPQ
        temperature = plan.scoring.temperature if is_drpq else request.temperature
        request = replace(
            request,
            queries=(),
            mode=plan.mode,
            temperature=temperature,
            top_k=plan.top_k,
            offset=0,
            cursor=None,
            min_confidence=None,
        )
        texts = queries.texts
        if queries.combine is not None:
            terms = None if plan.mode is Mode.DENSE or texts is None else texts[:1]
            return _Sent(request, queries, terms)
        terms = texts
        if request.operators and texts is not None:
            terms = [parse_operators(text).text for text in texts]
        if plan.mode is not Mode.LEXICAL and not queries.are_encoded:
            plain = terms if request.operators and terms is not None else queries.unencoded
            queries = queries.encoded(self._encode(plain, deadline))
        elif queries.are_encoded:
            as_vectors(queries.vectors, self._calls.dim)
        return _Sent(request, queries, None if plan.mode is Mode.DENSE else terms)

    def _results(self, sent: _Sent, plan: Plan, deadline: float) -> list[SearchResult]:
        if plan.mode is Mode.DENSE:
            return self._calls.attempt(lambda attempt: self._merged(attempt, sent, plan, None), deadline)
        try:
            return Retries(_DocumentChanged, tries=_TRIES).run(
                lambda: self._calls.attempt(lambda attempt: self._by_terms(attempt, sent, plan), deadline)
            )
        except _DocumentChanged:
            raise StaleReader(
                f"{self._calls.where}: documents changed while they were searched, {_TRIES} times in a row; try again"
            ) from None

    def _merged(self, attempt: Attempt, sent: _Sent, plan: Plan, terms: _Terms | None) -> list[SearchResult]:
        """Return the dense or lexical results."""
        found = self._found(attempt, sent, plan, ShardSearch(None if terms is None else terms.counts))
        ceilings = [0.0] * len(sent.queries) if terms is None else self._ceilings(sent, plan, terms)
        return [
            merge_results(own, plan.top_k, attempt.missing, plan.offset, QuestionModel(plan.model, ceiling))
            for own, ceiling in zip(zip(*found, strict=True), ceilings, strict=True)
        ]

    def _ceilings(self, sent: _Sent, plan: Plan, terms: _Terms) -> list[float]:
        """Return more than the score of any document by terms, for each query; zeros where none is judged."""
        if plan.model is None or terms.kind is None:
            return [0.0] * len(sent.queries)
        fusion = terms.fusion
        return [ceiling_of(text, terms.kind, terms.counts, k1=fusion.k1, b=fusion.b) for text in sent.terms or ()]

    def _found(
        self, attempt: Attempt, sent: _Sent, plan: Plan, shard: ShardSearch, **options: Any
    ) -> list[list[ShardResult]]:
        """Return the results of each shard, one for each query.

        Each of several is searched for its share first, and in full where it may have more of the best than that.
        """
        is_shared = self._calls.placement.is_by_id and sent.queries.combine is None
        share = replace(shard, num_shards=len(attempt.shards)) if is_shared else shard
        responses = attempt.ask_all("Search", sent.messages(share, **options))
        found = [[shard_result_from(result) for result in response.results] for response in responses]
        cut_short = [which_cut_short(own, plan.depth, plan.scoring) for own in zip(*found, strict=True)]
        calls: list[ShardCall] = []
        again: list[tuple[int, list[int]]] = []
        for place, served in enumerate(attempt.shards):
            numbers = [number for number, shards in enumerate(cut_short) if shards[place]]
            if numbers:
                calls.append(ShardCall(served, sent.some(numbers).messages(shard, **options)))
                again.append((place, numbers))
        for (place, numbers), response in zip(again, attempt.ask("Search", calls) if calls else [], strict=True):
            for number, result in zip(numbers, response.results, strict=True):
                full, before = shard_result_from(result), found[place][number]
                found[place][number] = replace(full, rounds=full.rounds + before.rounds)
        return found

    def _by_terms(self, attempt: Attempt, sent: _Sent, plan: Plan) -> list[SearchResult]:
        """Return the lexical or hybrid results."""
        terms = self._terms(attempt, sent.terms or [])
        if plan.mode is Mode.LEXICAL:
            return self._merged(attempt, sent, plan, terms)
        given, counts = sent.request, terms.counts
        fusion = parse_fusion(None if given.method is None else given.method.value, given.weights, terms.fusion)
        sent = replace(sent, request=replace(given, method=fusion.method, weights=fusion.weights))
        every = ShardSearch(counts, all_candidates=True)
        found = self._found(attempt, sent, plan._replace(fusion=fusion), every, fields=frozenset[Field](), quoting=None)
        rankings = [
            fuse_results(own, fusion, plan.top_k, plan.offset, ceiling)
            for own, ceiling in zip(zip(*found, strict=True), self._ceilings(sent, plan, terms), strict=True)
        ]
        hits = self._hits(attempt, sent, rankings, ShardSearch(counts))
        return [
            SearchResult(
                with_confidence(own, Mode.HYBRID, plan.model, ranking.evidence),
                ranking.exact and not attempt.missing,
                ranking.short_by,
                ranking.rounds,
                attempt.missing,
                Mode.HYBRID.value,
            )
            for own, ranking in zip(hits, rankings, strict=True)
        ]

    def _terms(self, attempt: Attempt, texts: Sequence[str]) -> _Terms:
        """Return what all shards know of terms; StoreError where they do not split texts or fuse alike."""
        request = messages.TermsRequest(texts=texts_message(list(dict.fromkeys(texts))))
        responses = attempt.ask_all("Terms", renamed(request))
        settings = [(each.lexical, each.fusion_json) for each in responses]
        for shard, own in zip(attempt.shards, settings, strict=True):
            if own != settings[0]:
                raise StoreError(
                    f"{shard.replicas.where}: expected the tokenizer and fusion of {attempt.shards[0].replicas.where}, "
                    f"{settings[0]}, got {own}; `mvindex build --lexical` and `mvindex tune --fusion` make shards alike"
                )
        kept = settings[0][1]
        fusion = parse_setting(json.loads(kept)) if kept else Fusion()
        if fusion is None:
            raise DamagedIndex(
                f"{attempt.shards[0].replicas.where}: expected a method and two weights, got {kept!r:.80}"
            )
        counts = TermCounts.total(counts_from(each.counts) for each in responses)
        return _Terms(counts, fusion, parse_lexical(settings[0][0] or None))

    def _hits(
        self, attempt: Attempt, sent: _Sent, rankings: Sequence[FusedRanking], shard: ShardSearch
    ) -> list[tuple[Hit, ...]]:
        """Return the hits of each ranking, with their fields, as the shards have them."""
        if not sent.request.fields:
            return [
                tuple(replace(one.hit, score=one.score, components=one.components) for one in ranking.hits)
                for ranking in rankings
            ]
        calls: list[ShardCall] = []
        numbers: list[int] = []
        for number, ranking in enumerate(rankings):
            for place, served in enumerate(attempt.shards):
                ids = [one.hit.id for one in ranking.hits if one.shard == place]
                if ids:
                    by_id = {"id": {"in": ids}}
                    make = sent.one(number).messages(shard, top_k=len(ids), filter=by_id, operators=False)
                    calls.append(ShardCall(served, make))
                    numbers.append(number)
        found: list[dict[str, Hit]] = [{} for _ in rankings]
        for number, response in zip(numbers, attempt.ask("Search", calls), strict=True):
            found[number].update({hit.id: hit for hit in shard_result_from(response.results[0]).hits})
        return [
            tuple(_same(own.get(one.hit.id), one.hit, one.score, one.components) for one in ranking.hits)
            for own, ranking in zip(found, rankings, strict=True)
        ]


class _DocumentChanged(Exception):
    """A document was replaced or deleted between two rounds of a search."""


def _same(shown: Hit | None, candidate: Hit, score: float, components: Any) -> Hit:
    """Return the hit as it is shown, with its fused score; raise _DocumentChanged unless it is the same candidate."""
    if shown is None or (shown.slot, _scores(shown)) != (candidate.slot, _scores(candidate)):
        raise _DocumentChanged
    return replace(shown, score=score, components=components)


def _scores(hit: Hit) -> list[float]:
    return [part.score for part in hit.components]
