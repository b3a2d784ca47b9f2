"""AdoptedStore: an index of others as a store that is only read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

from mvindex.encoder import Encoder, EncoderLike
from mvindex.encoder.registry import as_encoder
from mvindex.errors import ConfigError, QueryError, Unsupported
from mvindex.index import Index
from mvindex.index.administration import Admin
from mvindex.records import Floats, IndexInfo, Ints, batched
from mvindex.store.filters import Filter
from mvindex.store.protocol import Capabilities, Operation
from mvindex.store.reader import StoredDocument
from mvindex.store.rows import Batch
from mvindex.store.views import ViewType
from mvindex_connectors.adopted.search import AdoptedSearch, Catalog
from mvindex_connectors.adopted.source import Metric, RowSource

_READ_AT_ONCE = 256


def adopted_index(source: RowSource, encoder: EncoderLike | None, temperature: float, *, neighbors: int = 0) -> Index:
    """Return the index over a source; ConfigError for an encoder of other dimensions. neighbors: see AdoptedSearch."""
    loaded = None if encoder is None else as_encoder(encoder)
    if loaded is not None and loaded.dim != source.dim:
        source.close()
        raise ConfigError(f"{source.where}: expected an encoder of {source.dim} dimensions, got {loaded.dim}")
    store = AdoptedStore(source, None if loaded is None else dict(loaded.spec), temperature)
    return index_of(store, loaded, neighbors=neighbors)


def index_of(store: AdoptedStore, encoder: Encoder | None, *, device: str | None = None, neighbors: int = 0) -> Index:
    """Return the index of a store; on an error the store is closed."""
    try:
        # No operation of an administration is among the capabilities, so that none is called.
        return Index(store, store.searched(neighbors), cast(Admin, None), encoder, device)
    except BaseException:
        store.close()
        raise


class AdoptedStore:
    """The documents of an index of others. Writes and administration raise Unsupported."""

    missing_shards: tuple[int, ...] = ()
    is_untouched = False
    view_type = ViewType.FP32

    def __init__(
        self,
        source: RowSource,
        encoder: Mapping[str, Any] | None,
        temperature: float,
        catalog: Catalog | None = None,
    ) -> None:
        self._source, self._catalog = source, catalog
        self._way_out = f"it is read as others made it; {source.copied_by} makes an index of mvindex from it"
        self._own: dict[str, Any] = {
            "encoder": encoder,
            "dim": source.dim,
            "dtype": "fp32",
            "temperature": temperature,
        }
        self._settings: tuple[Mapping[str, Any] | None, Mapping[str, Any]] = (None, self._own)
        # Of so many rows, the number of documents.
        self._counted: tuple[int, int] | None = None

    def searched(self, neighbors: int) -> AdoptedSearch:
        """Return the search of the index."""
        return AdoptedSearch(self._source, self._catalog, neighbors)

    @property
    def where(self) -> str:
        """The path or address, without secrets."""
        return self._source.where

    def reopening(self) -> NoReturn:
        """Raise Unsupported."""
        self._refuse("it cannot be copied or pickled")

    @property
    def capabilities(self) -> Capabilities:
        """None of the operations that some stores lack, but reading views."""
        unsupported = dict.fromkeys(Operation, self._way_out)
        if self._catalog is not None:
            del unsupported[Operation.LEXICAL]
        if self._source.metric is Metric.INNER_PRODUCT:
            # What reads views scores them by inner products.
            del unsupported[Operation.TRANSFER]
        return Capabilities(unsupported)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that an index of mvindex would have; those of terms are the sidecar's."""
        if self._catalog is None:
            return self._own
        theirs = self._catalog.store.settings
        if self._settings[0] is not theirs:
            self._settings = (theirs, {**self._own, **{name: theirs.get(name) for name in ("lexical", "fusion")}})
        return self._settings[1]

    @property
    def dim(self) -> int:
        """Dimensions of the views."""
        return self._source.dim

    def close(self) -> None:
        """Close files and connections."""
        self._source.close()
        if self._catalog is not None:
            self._catalog.store.close()

    def refresh(self) -> bool:
        """Move on to the last sync of the sidecar; return whether there was a newer one."""
        return self._catalog is not None and self._catalog.store.refresh()

    def remove_if_untouched(self) -> None:
        """Close the store; others made it, so it is never removed."""
        self.close()

    def count(self) -> int:
        """Return the number of documents; without a sidecar that is up to date all ids of new rows are read, once."""
        if self._catalog is not None and self._catalog.is_current():
            return self._catalog.store.count()
        rows = self._source.count_rows()
        if self._counted is None or self._counted[0] != rows:
            self._counted = rows, sum(1 for _ in self._source.ids())
        return self._counted[1]

    def info(self) -> IndexInfo:
        """Describe the index."""
        kept = None if self._catalog is None else self._catalog.store.info()
        views = self._source.count_rows()
        return IndexInfo(
            path=self.where,
            format_version=0,
            documents=self.count(),
            views=views,
            num_deleted=0,
            dim=self.dim,
            dtype="fp32",
            encoder=self._own["encoder"],
            kind=self._source.kind,
            temperature=self._own["temperature"],
            prune_views=None,
            search=None,
            fresh_documents=0,
            size_bytes=views * self.dim * 4 + (0 if kept is None else kept.size_bytes),
            lexical=None if kept is None else kept.lexical,
            fusion=None if kept is None else kept.fusion,
            index_id=None if kept is None else kept.index_id,
        )

    def get(self, ids: Sequence[str]) -> dict[str, StoredDocument]:
        """Return the documents of the ids that exist, by id."""
        return {doc_id: one.whole() for doc_id, one in self._source.read(ids, with_text=True).items()}

    def vectors(self, ids: Sequence[str]) -> dict[str, Floats]:
        """Return the views, (k, d) float32, of each of the documents that exist, by id."""
        return {doc_id: rows for doc_id, (_, rows) in self.views(ids).items()}

    def views(self, ids: Sequence[str]) -> dict[str, tuple[StoredDocument, Floats]]:
        """Return each of the documents that exist with its views; Unsupported where scores are no inner products."""
        self.capabilities.check(Operation.TRANSFER, self.where)
        found = self._source.read(ids, with_text=True)
        return {doc_id: (one.whole(), one.views) for doc_id, one in found.items()}

    def scan(self, condition: Filter | None, after: str | None) -> Iterator[StoredDocument]:
        """Yield the documents in the order of their first rows; see Store.scan()."""
        if condition is not None:
            if self._catalog is None:
                raise Unsupported(f"{self.where}: filters need a sidecar, or a copy; {self._way_out}")
            ids = self._catalog.matching(condition, after)
        else:
            ids = self._source.ids()
            if after is not None and not any(doc_id == after for doc_id in ids):
                raise QueryError(
                    f"{self.where}: after={after!r}: expected the id of a document, got one that is not there"
                )
        for some in batched(ids, _READ_AT_ONCE):
            found = self.get(some)
            yield from (found[doc_id] for doc_id in some if doc_id in found)

    def stored(self, ids: Sequence[str], encoder: str) -> NoReturn:
        """Raise Unsupported."""
        self._refuse("it cannot be written to")

    def batches(self, size: int) -> Iterator[Batch]:
        """Raise Unsupported: it is not moved from here."""
        self._refuse("it is not copied from here")

    def writing(self) -> NoReturn:
        """Raise Unsupported."""
        self._refuse("it takes no writes")

    def matching(self, condition: Filter) -> Ints:
        """Raise Unsupported."""
        self._refuse("it takes no filter")

    def known(self, ids: Sequence[str]) -> NoReturn:
        """Raise Unsupported."""
        self._refuse("it takes no writes")

    def has_mark(self, mark: str) -> bool:
        """Raise Unsupported."""
        self._refuse("it takes no writes")

    def _refuse(self, reason: str) -> NoReturn:
        raise Unsupported(f"{self.where}: {reason}: {self._way_out}")
