"""The backend of milvus:// and milvus-lite: addresses, which the core finds by its entry points; its administration."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mvindex.encoder import Encoder
from mvindex.engines.build import BuildReport
from mvindex.errors import ConfigError, DamagedIndex, StoreError, Unsupported
from mvindex.index import Index
from mvindex.ingest.reembed import ReembedHooks, ReembedReport
from mvindex.maintenance import CompactReport, SnapshotReport, VerifyReport
from mvindex.records import CountCallback, Floats, ProgressCallback
from mvindex.search.tuning import TuneGoal, TuneReport, checked_target
from mvindex.store.catalog import CHOOSE_LEXICAL_KEY, FUSION_KEY
from mvindex.store.lexical.tokenizer import parse_lexical
from mvindex.store.protocol import Operation
from mvindex.store.schema import LEXICAL_KEY
from mvindex_connectors.milvus import maintenance
from mvindex_connectors.milvus.address import parse_address
from mvindex_connectors.milvus.collections import create_store, index_exists
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.engine import MilvusEngine
from mvindex_connectors.milvus.index_build import build_index, tune_index
from mvindex_connectors.milvus.store import MilvusStore

logger = logging.getLogger(__name__)
administer, has_lexical = None, True


class MilvusAdmin:
    """Administration of one index in Milvus."""

    def __init__(self, store: MilvusStore, engine: MilvusEngine) -> None:
        self._store, self._engine, self.judged = store, engine, engine.judged

    def build(
        self, kind: str | None, parameters: Mapping[str, int], *, target_recall: float, on_progress: ProgressCallback
    ) -> BuildReport:
        """Build an index of Milvus' own over all views; return once it covers every row. Other clients wait.

        Args:
            kind: mvindex' or Milvus' own name of a kind that this Milvus builds; None chooses by size.
            parameters: For ivf kinds nlist, the number of inverted lists.
            target_recall: Checked; Milvus' kinds are chosen by size alone.
            on_progress: Called with a step, how much of it is done, and how much there is.

        """
        checked_target(target_recall)
        if others := sorted(parameters.keys() - {"nlist"}):
            raise ConfigError(f"{self._store.where}: expected no parameter but nlist, got {others[0]!r}")
        return build_index(self._store, kind, parameters.get("nlist"), on_progress)

    def tune(self, queries: Floats | None, goal: TuneGoal, on_progress: ProgressCallback) -> TuneReport:
        """Measure the search parameters of the active index, and keep the fastest that reach the target."""
        return tune_index(self._store, self._engine, queries, goal, on_progress)

    def extend_if_due(self) -> None:
        """Do nothing: Milvus takes in what is added."""

    def compact(self, on_progress: CountCallback) -> CompactReport:
        """Remove views that no record names, left by writers that died."""
        return maintenance.compact(self._store, on_progress)

    def verify(self, on_progress: CountCallback) -> VerifyReport:
        """Check every record and all views against their checksums."""
        return maintenance.verify(self._store, on_progress)

    def reembed(self, encoder: Encoder, hooks: ReembedHooks, *, texts_only: bool) -> ReembedReport:
        """Make the views of all documents again, with another encoder, in collections that the index then moves to."""
        from mvindex_connectors.milvus.reembed import reembed

        return reembed(self._store, encoder, hooks, _index, texts_only=texts_only)

    def snapshot(self, path: Path, on_progress: CountCallback) -> SnapshotReport:
        """Raise Unsupported."""
        raise self._unsupported(Operation.SNAPSHOT)

    def set_lexical(self, tokenizer: str | None, on_progress: CountCallback) -> None:
        """Index the terms of all texts, or remove the lexical side."""
        kind = parse_lexical(tokenizer)
        with self._store.writing() as writer:
            writer.set_lexical(kind, on_progress)

    def set_filter_fields(self, fields: Mapping[str, str]) -> None:
        """Raise Unsupported."""
        raise self._unsupported(Operation.FILTER_FIELDS)

    def rebuild_columns_if_damaged(self) -> bool:
        """Return False: there are no columns."""
        return False

    def rebuild_lexical_if_damaged(self) -> bool:
        """Make the lexical side again where its counts cannot be used; return whether that was so."""
        stored = self._store.snapshot.lexical
        if stored is None:
            return False
        try:
            self._store.lexical_state()
        except (DamagedIndex, StoreError) as err:
            logger.info("%s", err)
            self.set_lexical(stored.kind.value, lambda count: None)
            return True
        return False

    def _unsupported(self, operation: Operation) -> Unsupported:
        return Unsupported(f"{self._store.where}: {self._store.capabilities.unsupported[operation]}")


def create(address: str, settings: Mapping[str, Any], encoder: Encoder | None) -> Index:
    """Create an empty index; ConfigError when one, or another collection of its name, exists."""
    if settings.get("dim") is not None:
        _check_dim(int(settings["dim"]))
    connection = Connection(parse_address(address))
    try:
        create_store(connection, _supported(connection, settings))
        return _index(MilvusStore(connection), encoder)
    except BaseException:
        connection.close()
        raise


def open_index(address: str, device: str | None, *, allow_partial: bool = False) -> Index:
    """Open the index, which is whole or not there; StoreError when there is none."""
    place = parse_address(address)
    if place.lacks_database:
        raise StoreError(f"{place.shown}: expected a Milvus Lite database with an index, got no such database")
    connection = Connection(place)
    try:
        return _index(MilvusStore(connection), None, device)
    except BaseException:
        connection.close()
        raise


def _index(store: MilvusStore, encoder: Encoder | None, device: str | None = None) -> Index:
    engine = MilvusEngine(store)
    return Index(store, engine, MilvusAdmin(store, engine), encoder, device)


def exists(address: str) -> bool:
    """Return whether there is an index, or anything else of its name."""
    place = parse_address(address)
    if place.lacks_database:
        return False
    connection = Connection(place)
    try:
        return index_exists(connection)
    finally:
        connection.close()


def shown(address: str) -> str:
    """Return the address without secrets."""
    return parse_address(address).shown


def _supported(connection: Connection, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings without a lexical side where this Milvus cannot have one, with a warning."""
    lexical = (LEXICAL_KEY, CHOOSE_LEXICAL_KEY)
    if connection.features.has_sparse or not any(settings.get(name) for name in lexical):
        return settings
    logger.warning(
        "%s: no lexical side: Milvus %s has no sparse vectors, which Milvus Lite and servers from 2.4 on have. "
        "Search is dense",
        connection.address.shown,
        connection.features.server,
    )
    return {name: value for name, value in settings.items() if name not in (*lexical, FUSION_KEY)}


def _check_dim(dim: int) -> None:
    from mvindex_connectors.milvus.layout import MAX_DIM, MIN_DIM

    if not MIN_DIM <= dim <= MAX_DIM:
        raise ConfigError(f"dim: expected {MIN_DIM} to {MAX_DIM:,} in Milvus, got {dim}")
