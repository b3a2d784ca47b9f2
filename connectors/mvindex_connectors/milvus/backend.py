"""The backend of milvus:// and milvus-lite: addresses, which the core finds by its entry points."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NoReturn

from mvindex.encoder import Encoder
from mvindex.errors import ConfigError, StoreError, Unsupported
from mvindex.index import Index
from mvindex.store.catalog import CHOOSE_LEXICAL_KEY, FUSION_KEY
from mvindex.store.schema import LEXICAL_KEY
from mvindex_connectors.milvus.address import parse_address
from mvindex_connectors.milvus.admin import MilvusAdmin
from mvindex_connectors.milvus.collections import create_store, index_exists
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.engine import MilvusEngine
from mvindex_connectors.milvus.store import MilvusStore

logger = logging.getLogger(__name__)
is_served, has_lexical = False, True


def administer(address: str) -> NoReturn:
    """Raise Unsupported: this process works on the index itself."""
    raise Unsupported(f"{shown(address)}: expected an index behind a server of mvindex")


def create(address: str, settings: Mapping[str, Any], encoder: Encoder | None) -> Index:
    """Create an empty index; ConfigError when one, or another collection of its name, exists."""
    if settings.get("dim") is not None:
        _check_dim(int(settings["dim"]))
    connection = Connection(parse_address(address))
    try:
        create_store(connection, _supported(connection, settings))
        return _index(MilvusStore(connection), encoder, None)
    except BaseException:
        connection.close()
        raise


def open_local(address: str, device: str | None) -> Index:
    """Open the index; StoreError when there is none."""
    place = parse_address(address)
    if place.lacks_database:
        raise StoreError(f"{place.shown}: expected a Milvus Lite database with an index, got no such database")
    connection = Connection(place)
    try:
        return _index(MilvusStore(connection), None, device)
    except BaseException:
        connection.close()
        raise


def open_index(address: str, device: str | None, *, allow_partial: bool = False) -> Index:
    """Open the index, which is whole or not there; StoreError when there is none."""
    return open_local(address, device)


def _index(store: MilvusStore, encoder: Encoder | None, device: str | None) -> Index:
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
