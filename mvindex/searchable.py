"""Searchable: what is asked by text or vector, whatever keeps the documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, overload

import numpy as np

from mvindex.aggregate import Aggregate, Scoring, parse_aggregate
from mvindex.arguments import Asked, Vector, as_vectors, asked, check_query_text, checked_id
from mvindex.encoder import Encoder, encoder_from_spec
from mvindex.errors import ConfigError, QueryError
from mvindex.records import Floats, SearchResult
from mvindex.results import ViewScore
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
    def _explained(self, query: Floats, id: str, chosen: Scoring) -> list[ViewScore]:
        """Every view of the document, best first; QueryError without such an id. query: (d,)."""

    @property
    def temperature(self) -> float:
        """What DRPQ scoring divides view scores by, unless a search says otherwise."""
        settings = self._settings
        return float(settings.get("temperature") or (settings["encoder"] or {}).get("temperature", 1.0))

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
    ) -> SearchResult | list[SearchResult]:
        """The top_k documents of a query: min(top_k, documents that pass the filter) of them, distinct, best first.

        query: a text or a (d,) vector gives one SearchResult; a list of texts or a (q, d) array a list of them.
        scoring: "max", the best view's score, or "drpq", the mean of the view scores s weighted by softmax(s / T) (DRPQ
        eq. 4-6); temperature: T, the index's own by default. exact=True demands a certified answer, whatever the
        active kind. candidates: for "drpq" only, look no further than that many view hits, at least top_k documents
        (the paper's fixed depth, 1,000 k of them): the result is exact only where that is proven all the same.
        """
        chosen = self._scoring(scoring, temperature)
        wanted = asked(top_k, filter, chosen, exact, candidates)
        queries, is_single = self._query_vectors(query)
        results = self._results(queries, wanted)
        return results[0] if is_single else results

    def explain(
        self, query: str | Vector, id: str, scoring: str = "max", *, temperature: float | None = None
    ) -> list[ViewScore]:
        """Every view of a document with its score for the query, best first. QueryError without such an id."""
        chosen = self._scoring(scoring, temperature)
        queries, is_single = self._query_vectors(query)
        if not is_single:
            raise QueryError("explain() takes one query: a text or a (d,) vector")
        return self._explained(queries[0], checked_id(id), chosen)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """One vector per text, (q, dim) float32, by the index's encoder; QueryError for an empty text."""
        if not texts:
            return np.empty((0, self.dim or 1), dtype=np.float32)
        for number, text in enumerate(texts, start=1):
            check_query_text(text, number, len(texts))
        return as_vectors(self.encoder.encode_queries(texts), self.dim)

    def _scoring(self, name: str, temperature: float | None) -> Scoring:
        aggregate = parse_aggregate(name)
        if aggregate is Aggregate.MAX and temperature is not None:
            raise QueryError("temperature= belongs to scoring='drpq'")
        return Scoring(aggregate, self.temperature if temperature is None else temperature)

    def _query_vectors(self, query: Any) -> tuple[Floats, bool]:
        """The queries as (q, d) float32 and whether one was given alone."""
        if isinstance(query, str):
            return self.encode_queries([query]), True
        if isinstance(query, Sequence) and all(isinstance(text, str) for text in query):
            return self.encode_queries(list(query)), False
        vectors = as_vectors(query, self.dim)
        return (vectors[None], True) if vectors.ndim == 1 else (vectors, False)
