"""Searchable: what is asked by text or vector, whatever keeps the documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from threading import Lock
from typing import Any, overload

import numpy as np

from mvindex.encoder import Encoder, encoder_from_spec
from mvindex.errors import ConfigError, QueryError, Unsupported
from mvindex.index.hybrid import Questions
from mvindex.index.options import (
    Asked,
    Vector,
    as_vectors,
    asked,
    check_mode,
    check_query_text,
    checked_ids,
    question_texts,
)
from mvindex.index.results import ViewScore
from mvindex.records import Floats, SearchResult
from mvindex.scoring.aggregate import Scoring, parse_scoring
from mvindex.scoring.fusion import Fusion, Mode, parse_fusion, parse_mode
from mvindex.scoring.rerank import Reranker, parse_rerank
from mvindex.store.filters import Filter


class Searchable(ABC):
    """Queries checked, encoded and handed on to what keeps the documents, and the encoder that they need."""

    def __init__(self, encoder: Encoder | None, device: str | None) -> None:
        self._encoder = encoder
        self._device = device
        self._lock = Lock()

    @property
    @abstractmethod
    def where(self) -> str:
        """Where the index is, for messages: a directory, or an address without secrets."""

    @property
    @abstractmethod
    def dim(self) -> int | None:
        """Dimensions of the views; None while an index with an encoder is empty."""

    @property
    @abstractmethod
    def _settings(self) -> Mapping[str, Any]:
        """What was chosen when the index was made."""

    @abstractmethod
    def _results(self, queries: Floats, wanted: Asked) -> list[SearchResult]:
        """One for each of the queries, (q, d)."""

    @abstractmethod
    def _explained(self, query: Floats, ids: Sequence[str], chosen: Scoring) -> dict[str, list[ViewScore]]:
        """Every view of each of the documents that exist, best first, by id. query: (d,)."""

    @property
    def temperature(self) -> float:
        """What DRPQ scoring divides view scores by, unless a search says otherwise."""
        settings = self._settings
        return float(settings.get("temperature") or (settings["encoder"] or {}).get("temperature", 1.0))

    @property
    def fusion(self) -> Fusion:
        """How hybrid search fuses views and words, unless a search says otherwise: as tuned, zscore and (1, 1) else."""
        kept = self._settings.get("fusion")
        return Fusion() if kept is None else parse_fusion(kept["method"], kept["weights"])

    @property
    def encoder(self) -> Encoder:
        """The encoder that the index was made with, loaded on first use; QueryError for an index of given vectors."""
        spec = self._settings["encoder"]
        if spec is None:
            raise QueryError(f"{self.where}: this index was made of given vectors; give vectors, not texts")
        with self._lock:
            if self._encoder is None:
                self._encoder = encoder_from_spec(spec, device=self._device)
            return self._encoder

    def use_encoder(self, encoder: Encoder) -> None:
        """Nothing; texts are encoded by this one; ConfigError when it is not the one that made the index."""
        spec = self._settings["encoder"]
        if spec is None:
            raise ConfigError(f"{self.where}: this index was made of given vectors; it takes no encoder")
        if encoder.fingerprint != spec["fingerprint"]:
            raise ConfigError(
                f"{self.where}: made with the encoder {spec['fingerprint']!r}; given {encoder.fingerprint!r}. "
                "Vectors of two encoders cannot be compared"
            )
        self._encoder = encoder

    @overload
    def search(
        self,
        query: str,
        top_k: int = 10,
        filter: Filter | None = None,
        scoring: str = "max",
        exact: bool = False,
        *,
        temperature: float | None = None,
        candidates: int | None = None,
        mode: str = "dense",
        fusion: str | None = None,
        weights: tuple[float, float] | None = None,
        text: str | Sequence[str] | None = None,
        rerank: Reranker | str | PathLike[str] | None = None,
        rerank_on: str | None = None,
        rerank_depth: int | None = None,
    ) -> SearchResult: ...

    @overload
    def search(
        self,
        query: Sequence[str] | Vector,
        top_k: int = 10,
        filter: Filter | None = None,
        scoring: str = "max",
        exact: bool = False,
        *,
        temperature: float | None = None,
        candidates: int | None = None,
        mode: str = "dense",
        fusion: str | None = None,
        weights: tuple[float, float] | None = None,
        text: str | Sequence[str] | None = None,
        rerank: Reranker | str | PathLike[str] | None = None,
        rerank_on: str | None = None,
        rerank_depth: int | None = None,
    ) -> Any: ...

    def search(  # noqa: PLR0913 - the one public call; each argument is a choice of the caller's
        self,
        query: str | Sequence[str] | Vector,
        top_k: int = 10,
        filter: Filter | None = None,
        scoring: str = "max",
        exact: bool = False,
        *,
        temperature: float | None = None,
        candidates: int | None = None,
        mode: str = "dense",
        fusion: str | None = None,
        weights: tuple[float, float] | None = None,
        text: str | Sequence[str] | None = None,
        rerank: Reranker | str | PathLike[str] | None = None,
        rerank_on: str | None = None,
        rerank_depth: int | None = None,
    ) -> SearchResult | list[SearchResult]:
        """The top_k documents of a query: min(top_k, documents that pass the filter) of them, distinct, best first.

        query: a text or a (d,) vector gives one SearchResult; a list of texts or a (q, d) array a list of them.
        scoring: "max", the best view's score, or "drpq", the mean of the view scores s weighted by softmax(s / T) (DRPQ
        eq. 4-6); temperature: T, the index's own by default. exact=True demands a certified answer, whatever the
        active kind. candidates: for "drpq" only, look no further than that many view hits, at least top_k documents
        (the paper's fixed depth, 1,000 k of them): the result is exact only where that is proven all the same.

        mode: "dense", by views; "lexical", by words (BM25), only documents that have one of them; "hybrid", both, fused
        (docs/hybrid.md), for indexes with a lexical side. fusion: of hybrid, "zscore", "minmax" or "rrf"; weights: of
        views and of words; by default the index's own, as tuned, or "zscore" and (1, 1). text: what the words are, one
        for each query: the query itself by default, to be given with vectors.

        rerank: a function of the question and the hits that gives a score for each, higher is better, or a checkpoint
        of a cross-encoder. The best rerank_depth documents, max(50, top_k) by default, come in the order of these.
        rerank_on: of a checkpoint, what it reads, "snippet" (the default) or "text". With vectors text is the question.
        """
        again = parse_rerank(rerank, rerank_on, rerank_depth, top_k, self._device)
        if again is not None:
            questions, words = again.questions(query, mode, text)
            found = self.search(query, again.depth, filter, scoring, exact, temperature=temperature,
                                candidates=candidates, mode=mode, fusion=fusion, weights=weights,
                                text=words)  # fmt: skip
            return again.reranked(questions, found, mode)
        chosen = parse_scoring(scoring, temperature, self.temperature)
        wanted = asked(top_k, filter, chosen, exact, candidates)
        way = parse_mode(mode)
        check_mode(way, wanted, fusion=fusion, weights=weights, text=text)
        if way is Mode.DENSE:
            queries, is_single = self._query_vectors(query)
            results = self._results(queries, wanted)
        else:
            texts, is_single = question_texts(query, text, way)
            vectors = None if way is Mode.LEXICAL else self._vectors_for(query, len(texts), is_single)
            results = self._mixed(Questions(texts, vectors, parse_fusion(fusion, weights, self.fusion)), wanted)
        return results[0] if is_single else results

    def explain(
        self, query: str | Vector, id: str, scoring: str = "max", *, temperature: float | None = None
    ) -> list[ViewScore]:
        """Every view of a document with its score for the query, best first. QueryError without such an id."""
        found = self.explain_all(query, [id], scoring, temperature=temperature)
        if id not in found:
            raise QueryError(f"{self.where}: there is no document {id!r}")
        return found[id]

    def explain_all(
        self, query: str | Vector, ids: str | Iterable[str], scoring: str = "max", *, temperature: float | None = None
    ) -> dict[str, list[ViewScore]]:
        """What explain() gives of each of the documents that exist, by id, in the order of the ids."""
        chosen = parse_scoring(scoring, temperature, self.temperature)
        queries, is_single = self._query_vectors(query)
        if not is_single:
            raise QueryError("explain() takes one query: a text or a (d,) vector")
        wanted = checked_ids(ids)
        return self._explained(queries[0], wanted, chosen) if wanted else {}

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """One vector per text, (q, dim) float32, by the index's encoder; QueryError for an empty text."""
        if not texts:
            return np.empty((0, self.dim or 1), dtype=np.float32)
        for number, text in enumerate(texts, start=1):
            check_query_text(text, number, len(texts))
        return as_vectors(self.encoder.encode_queries(texts), self.dim)

    def _mixed(self, questions: Questions, wanted: Asked) -> list[SearchResult]:
        """One for each of the questions, by words, or by words and views."""
        raise Unsupported(f"{self.where}: only an index in a directory has a lexical side; mode='dense' works here")

    def _vectors_for(self, query: Any, count: int, is_single: bool) -> Floats:
        """The vectors of the query, one for each of so many texts."""
        vectors, is_alone = self._query_vectors(query)
        if (len(vectors), is_alone) != (count, is_single):
            raise QueryError(f"{len(vectors)} query vectors and {count} texts; wanted a text for each")
        return vectors

    def _query_vectors(self, query: Any) -> tuple[Floats, bool]:
        """The queries as (q, d) float32 and whether one was given alone."""
        if isinstance(query, str):
            return self.encode_queries([query]), True
        if isinstance(query, Sequence) and all(isinstance(text, str) for text in query):
            return self.encode_queries(list(query)), False
        vectors = as_vectors(query, self.dim)
        return (vectors[None], True) if vectors.ndim == 1 else (vectors, False)
