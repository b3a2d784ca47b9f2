"""Search of served shards as one index: dense and lexical results are merged, hybrid ones fused from both lists.

Hybrid search takes three rounds: the terms of the queries are counted in all shards; each returns its candidates,
scored by these counts; and the best are asked for with their texts. Where one has changed meanwhile it begins again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mvindex.errors import DamagedIndex, QueryError, StaleReader, StoreError
from mvindex.records import Combine, Floats, Hit, QueryGroup, SearchResult
from mvindex.search.bm25 import TermCounts
from mvindex.search.fusion import Fusion, Mode, parse_setting
from mvindex.search.operators import parse_operators
from mvindex.search.options import SearchOptions, ShardSearch
from mvindex.search.queries import as_groups, as_vectors, check_query_text, group_texts, is_texts, query_texts
from mvindex.search.result_merge import FusedRanking, ShardResult, fuse_results, merge_results, which_cut_short
from mvindex.store.protocol import Operation
from mvindex.v1 import search_pb2 as messages
from mvindex_connectors.remote.base import capabilities_of
from mvindex_connectors.remote.convert import counts_from, shard_result_from
from mvindex_connectors.remote.requests import renamed, search_call, texts_message
from mvindex_connectors.remote.shard_calls import Attempt, ShardCall, ShardCalls

# How often a search begins again because documents change while it goes on.
_TRIES = 4


@dataclass(frozen=True, slots=True)
class _Queries:
    """Queries as they are sent to every shard.

    Attributes:
        sent: Texts, vectors (q, d), or one query group.
        texts: The text beside each query, for terms and citations; None without.
        terms: The text of each query without operators; None for a dense search.

    """

    sent: Any
    texts: list[str] | None
    terms: list[str] | None

    def __len__(self) -> int:
        return 1 if isinstance(self.sent, QueryGroup) else len(self.sent)

    def request(self, options: SearchOptions) -> Callable[[str], Any]:
        """Return what makes the request of all queries."""
        is_lexical = options.mode is Mode.LEXICAL and self.texts is not None
        return _request(self.sent if not is_lexical else self.texts, options, None if is_lexical else self.texts)

    def some(self, numbers: Sequence[int]) -> _Queries:
        """Return those of the queries that have these numbers."""
        if len(numbers) == len(self):
            return self
        sent = self.sent[numbers] if isinstance(self.sent, np.ndarray) else [self.sent[number] for number in numbers]
        texts, terms = (
            None if each is None else [each[number] for number in numbers] for each in (self.texts, self.terms)
        )
        return _Queries(sent, texts, terms)

    def one(self, number: int, options: SearchOptions) -> Callable[[str], Any]:
        """Return what makes the request of one of the queries, its operators not read again."""
        if isinstance(self.sent, QueryGroup):
            return _request(self.sent, options, self.texts)
        terms = None if self.terms is None else self.terms[number : number + 1]
        return _request(self.sent[number : number + 1], options, terms)


def _request(query: Any, options: SearchOptions, texts: list[str] | None) -> Callable[[str], Any]:
    text: Any = texts
    if isinstance(query, QueryGroup):
        text = None if texts is None else texts[0]
        options = replace(options, combine=Combine(query.combine))
    return renamed(search_call("", query, options, text).request)


class ShardedSearch:
    """Dense, lexical and hybrid search of served shards."""

    def __init__(self, calls: ShardCalls, encode: Callable[[Sequence[str], float], Floats]) -> None:
        """Take the shards; encode: returns the vectors of texts before a deadline."""
        self._calls, self._encode = calls, encode

    def search(self, query: Any, options: SearchOptions, text: str | Sequence[str] | None) -> Any:
        """Return the result of a query, or of each of several; see IndexProtocol.search_with_options()."""
        groups = as_groups(query)
        if groups is not None:
            texts: Sequence[Any] = [text] * len(groups) if text is None or isinstance(query, QueryGroup) else text
            if isinstance(texts, str) or len(texts) != len(groups):
                raise QueryError(f"text: expected a text for each of {len(groups)} query groups")
            found = [self._group(group, options, one) for group, one in zip(groups, texts, strict=True)]
            return found[0] if isinstance(query, QueryGroup) else found
        options, deadline = (
            self._with_mode(options, has_text=text is not None or is_texts(query)),
            self._calls.deadline(),
        )
        if options.mode is Mode.DENSE and text is None and not is_texts(query):
            vectors = as_vectors(query, self._dim)
            is_single = vectors.ndim == 1
            queries = _Queries(vectors[None] if is_single else vectors, None, None)
        else:
            own, is_single = query_texts(query, text, options.mode)
            terms = [parse_operators(one).text for one in own] if options.operators else own
            sent = None if options.mode is Mode.LEXICAL else self._vectors(query, terms, is_single, deadline)
            queries = _Queries(own if sent is None else sent, own, None if options.mode is Mode.DENSE else terms)
        results = self._results(queries, options, deadline) if len(queries) else []
        return results[0] if is_single else results

    def _group(self, group: QueryGroup, options: SearchOptions, text: str | None) -> SearchResult:
        if options.operators:
            raise QueryError("operators= reads the text of one query; a query group has several")
        texts = group_texts(group, text)
        options = self._with_mode(options, has_text=texts is not None)
        if options.mode is Mode.LEXICAL:
            raise QueryError("mode='lexical' reads no vectors of a query group; expected mode='dense' or 'hybrid'")
        if options.mode is Mode.HYBRID and texts is None:
            raise QueryError("mode='hybrid' searches texts; give one beside the vectors of the group: text=...")
        terms = None if options.mode is Mode.DENSE or texts is None else texts[:1]
        queries = _Queries(group, None if text is None else [text], terms)
        return self._results(queries, options, self._calls.deadline())[0]

    def _with_mode(self, options: SearchOptions, *, has_text: bool) -> SearchOptions:
        info = self._calls.first_info
        has_lexical = info.lexical is not None
        where = self._calls.where
        if options.operators:
            capabilities_of(info).check(Operation.LEXICAL, where)
            options = replace(options, mode=Mode.LEXICAL if options.mode is Mode.LEXICAL else Mode.HYBRID)
        options = options.with_mode(has_text=has_text, has_lexical=has_lexical)
        if options.mode is not Mode.DENSE:
            capabilities_of(info).check(Operation.LEXICAL, where)
        return options.with_defaults(info.temperature, None)

    @property
    def _dim(self) -> int | None:
        return self._calls.dim

    def _vectors(self, query: Any, texts: Sequence[str], is_single: bool, deadline: float) -> Floats:
        """Return the vectors of queries, one for each of the texts."""
        if is_texts(query):
            for number, one in enumerate(texts, start=1):
                check_query_text(one, number, len(texts))
            return self._encode(texts, deadline)
        vectors = as_vectors(query, self._dim)
        if (len(_rows(vectors)), vectors.ndim == 1) != (len(texts), is_single):
            raise QueryError(
                f"expected a text for each query vector, got {len(_rows(vectors))} vectors and {len(texts)} texts"
            )
        return _rows(vectors)

    def _results(self, queries: _Queries, options: SearchOptions, deadline: float) -> list[SearchResult]:
        if options.mode is Mode.DENSE:
            return self._calls.attempt(lambda attempt: self._merged(attempt, queries, options, None), deadline)
        for _ in range(_TRIES):
            try:
                return self._calls.attempt(lambda attempt: self._by_terms(attempt, queries, options), deadline)
            except _DocumentChanged:
                continue
        raise StaleReader(
            f"{self._calls.where}: documents changed while they were searched, {_TRIES} times in a row; try again"
        )

    def _merged(
        self, attempt: Attempt, queries: _Queries, options: SearchOptions, counts: TermCounts | None
    ) -> list[SearchResult]:
        """Return the dense or lexical results."""
        found = self._found(attempt, queries, replace(options, shard=ShardSearch(counts)))
        return [merge_results(own, options.top_k, attempt.missing) for own in zip(*found, strict=True)]

    def _found(self, attempt: Attempt, queries: _Queries, options: SearchOptions) -> list[list[ShardResult]]:
        """Return the results of each shard, one for each query.

        Each of several is searched for its share first, and in full where it may have more of the best than that.
        """
        shared = self._for_share(attempt, queries, options)
        responses = attempt.ask_all("Search", queries.request(shared))
        found = [[shard_result_from(result) for result in response.results] for response in responses]
        depth = options.depth if options.mode is Mode.HYBRID else options.top_k
        cut_short = [which_cut_short(own, depth, options.scoring) for own in zip(*found, strict=True)]
        calls: list[ShardCall] = []
        again: list[tuple[int, list[int]]] = []
        for place, shard in enumerate(attempt.shards):
            numbers = [number for number, shards in enumerate(cut_short) if shards[place]]
            if numbers:
                calls.append(ShardCall(shard, queries.some(numbers).request(options)))
                again.append((place, numbers))
        for (place, numbers), response in zip(again, attempt.ask("Search", calls) if calls else [], strict=True):
            for number, result in zip(numbers, response.results, strict=True):
                full, before = shard_result_from(result), found[place][number]
                found[place][number] = replace(full, rounds=full.rounds + before.rounds)
        return found

    def _for_share(self, attempt: Attempt, queries: _Queries, options: SearchOptions) -> SearchOptions:
        """Return the options of a search of each shard for its share, where ids determine the shards."""
        is_shared = self._calls.placement.is_by_id and not isinstance(queries.sent, QueryGroup)
        if options.shard is None or not is_shared:
            return options
        return replace(options, shard=replace(options.shard, num_shards=len(attempt.shards)))

    def _by_terms(self, attempt: Attempt, queries: _Queries, options: SearchOptions) -> list[SearchResult]:
        """Return the lexical or hybrid results."""
        counts, fusion = self._counts(attempt, queries.terms or [])
        # The temperature is set already where the scoring needs one.
        options = replace(options.with_defaults(1.0, fusion), temperature=options.temperature)
        if options.mode is Mode.LEXICAL:
            return self._merged(attempt, queries, replace(options, method=None, weights=None), counts)
        every = replace(options, shard=ShardSearch(counts, all_candidates=True), fields=frozenset())
        found = self._found(attempt, queries, every)
        rankings = [fuse_results(own, options.fusion, options.top_k) for own in zip(*found, strict=True)]
        hits = self._hits(attempt, queries, rankings, replace(options, shard=ShardSearch(counts), operators=False))
        return [
            SearchResult(
                own,
                ranking.exact and not attempt.missing,
                ranking.short_by,
                ranking.rounds,
                attempt.missing,
                Mode.HYBRID.value,
            )
            for own, ranking in zip(hits, rankings, strict=True)
        ]

    def _counts(self, attempt: Attempt, texts: Sequence[str]) -> tuple[TermCounts, Fusion]:
        """Return the counts of all shards, and their fusion; StoreError where they do not split texts or fuse alike."""
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
        return TermCounts.total(counts_from(each.counts) for each in responses), fusion

    def _hits(
        self, attempt: Attempt, queries: _Queries, rankings: Sequence[FusedRanking], options: SearchOptions
    ) -> list[tuple[Hit, ...]]:
        """Return the hits of each ranking, with their fields, as the shards have them."""
        if not options.fields:
            return [
                tuple(replace(one.hit, score=one.score, components=one.components) for one in ranking.hits)
                for ranking in rankings
            ]
        calls: list[ShardCall] = []
        numbers: list[int] = []
        for number, ranking in enumerate(rankings):
            for place, shard in enumerate(attempt.shards):
                ids = [one.hit.id for one in ranking.hits if one.shard == place]
                if ids:
                    how = replace(options, top_k=len(ids), filter={"id": {"in": ids}})
                    calls.append(ShardCall(shard, queries.one(number, how)))
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


def _rows(vectors: Floats) -> Floats:
    """Return a (d,) or (q, d) array as (q, d)."""
    return vectors[None] if vectors.ndim == 1 else vectors
