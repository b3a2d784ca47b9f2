"""MVIndexEmbeddingRetriever and MVIndexTextRetriever: Haystack's components that search a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.types import FilterPolicy, apply_filter_policy

from mvindex.errors import QueryError
from mvindex.records import check_count
from mvindex_connectors.frameworks.haystack.document_store import MVIndexDocumentStore

_MODES = ("auto", "dense", "hybrid", "lexical")


class _Retriever:
    """The options that both retrievers share."""

    def __init__(  # noqa: PLR0913 - each is a choice of the caller's
        self,
        document_store: MVIndexDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        scoring: str = "max",
        exact: bool = False,
        return_embedding: bool = False,
        has_view_scores: bool = True,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
        mode: str = "auto",
    ) -> None:
        """Make a retriever.

        Args:
            document_store: The store to search.
            filters: Haystack's filters for every run.
            top_k: Number of documents.
            scoring: "max" or "drpq", as of Index.search().
            exact: Demand a certified answer, whatever engine is active.
            return_embedding: Return documents with their embeddings.
            has_view_scores: Return every view's score in the citation; one more call on a server and in Milvus.
            filter_policy: Whether filters of a run replace those above, or are merged with them.
            mode: "auto" (hybrid for a text where the index has terms, else dense), "dense", "hybrid" or "lexical".

        """
        if not isinstance(document_store, MVIndexDocumentStore):
            raise TypeError(f"document_store: expected MVIndexDocumentStore, got {type(document_store).__name__}")
        if mode not in _MODES:
            raise ValueError(f"mode: expected auto, dense, hybrid or lexical, got {mode!r}")
        self.document_store, self.filters, self.top_k = document_store, filters, _checked_top_k(top_k)
        self.options = {
            "scoring": scoring,
            "exact": exact,
            "return_embedding": return_embedding,
            "has_view_scores": has_view_scores,
            "mode": mode,
        }
        self.filter_policy = FilterPolicy.from_str(str(filter_policy))

    def warm_up(self) -> None:
        """Load what searches need; a pipeline calls it before its first run."""
        self.document_store.warm_up()

    def to_dict(self) -> dict[str, Any]:
        """Return the retriever as a dict."""
        data: dict[str, Any] = default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            filters=self.filters,
            top_k=self.top_k,
            filter_policy=self.filter_policy.value,
            **self.options,
        )
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """Return the retriever of a dict that to_dict() made."""
        parameters = dict(data["init_parameters"])
        store = parameters["document_store"]
        if isinstance(store, Mapping):
            parameters["document_store"] = MVIndexDocumentStore.from_dict(dict(store))
        return default_from_dict(cls, {**data, "init_parameters": parameters})

    def _run_options(
        self, filters: dict[str, Any] | None, top_k: int | None, more: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the filters and options of one run."""
        options = {name: value for name, value in self.options.items() if name != "mode" or value != "auto"}
        return {
            "filters": apply_filter_policy(self.filter_policy, self.filters, filters),
            "top_k": self.top_k if top_k is None else _checked_top_k(top_k),
            **options,
            **(more or {}),
        }


@component
class MVIndexEmbeddingRetriever(_Retriever):
    """Retrieve the best documents of a query's embedding; each carries a citation, meta["mvindex"]."""

    @component.output_types(documents=list[Document])
    def run(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        query: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Return the documents, best first.

        Args:
            query_embedding: The embedding of the query.
            filters: Haystack's filters of this run; see filter_policy.
            top_k: Number of documents of this run.
            query: The text of the query: mode="hybrid" and "lexical" need it, "auto" is dense without it.
            options: Further options of Index.search() for this run, such as {"offset": 10}.

        """
        chosen = self._run_options(filters, top_k, options)
        return {"documents": self.document_store.retrieve(query_embedding, text=query, **chosen)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        query: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Do what run() does, awaited."""
        chosen = self._run_options(filters, top_k, options)
        return {"documents": await self.document_store.retrieve_async(query_embedding, text=query, **chosen)}


@component
class MVIndexTextRetriever(_Retriever):
    """Retrieve the best documents of a text; each carries a citation, meta["mvindex"].

    The index encodes the text itself; mode="lexical" also works in a store of given embeddings.
    """

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Return the documents, best first.

        Args:
            query: The text.
            filters: Haystack's filters of this run; see filter_policy.
            top_k: Number of documents of this run.
            options: Further options of Index.search() for this run, such as {"offset": 10}.

        """
        return {"documents": self.document_store.retrieve(query, **self._run_options(filters, top_k, options))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Do what run() does, awaited."""
        return {
            "documents": await self.document_store.retrieve_async(query, **self._run_options(filters, top_k, options))
        }


def _checked_top_k(top_k: int) -> int:
    try:
        check_count("top_k", top_k)
    except QueryError as err:
        raise ValueError(str(err)) from err
    return top_k
