"""MVIndexRetriever: LangChain's retriever that returns exactly k documents of a store."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field, model_validator

from mvindex_connectors.frameworks.langchain.vector_store import MVIndexVectorStore


class MVIndexRetriever(BaseRetriever):
    """Retrieve the k best documents of a store, for chains.

    Options of one call, as invoke(query, k=2), take precedence. `index` and other arguments of a store may be given in
    place of the store. Another argument is an error.

    Attributes:
        store: The store.
        k: Number of documents.
        filter: A filter of the index.
        options: Options of every search, such as {"exact": True}.

    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    store: MVIndexVectorStore
    k: int = 4
    filter: dict[str, Any] | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _with_store(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "index" not in values or "store" in values:
            return values
        own = {name: value for name, value in values.items() if name in cls.model_fields}
        return {**own, "store": MVIndexVectorStore(**{name: values[name] for name in values.keys() - own.keys()})}

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return self.store.similarity_search(query, **self._search_options(options))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return await self.store.asimilarity_search(query, **self._search_options(options))

    def _search_options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"k": self.k, "filter": self.filter, **self.options, **options}
