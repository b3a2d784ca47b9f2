"""The backend of adopted:FOLDER addresses, collections of others in Milvus with a sidecar; see sync_milvus()."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from mvindex.encoder import Encoder
from mvindex.errors import ConfigError, Unsupported
from mvindex.index import Index
from mvindex.paths import user_path
from mvindex_connectors.adopted.catalog import Catalog
from mvindex_connectors.adopted.milvus_rows import open_rows
from mvindex_connectors.adopted.sidecar import Sidecar
from mvindex_connectors.adopted.store import AdoptedStore, index_of

_SCHEME, _MAX_NEIGHBORS = "adopted:", 1_000
is_served, has_lexical = False, False


def administer(address: str) -> NoReturn:
    """Raise Unsupported: this process works on the index itself."""
    raise Unsupported(f"{address}: expected an index behind a server of mvindex")


def create(address: str, settings: Mapping[str, Any], encoder: Encoder | None) -> NoReturn:
    """Raise Unsupported: a collection of others is adopted."""
    raise Unsupported(f"{address}: `mvindex adopt` makes it of a collection in Milvus")


def open_local(address: str, device: str | None) -> Index:
    """Open the sidecar and its collection; StoreError where either is missing."""
    folder, neighbors = _parsed(address)
    sidecar = Sidecar(folder)
    try:
        source = open_rows(sidecar.adopted.address, sidecar.adopted.fields)
        store = AdoptedStore(source, sidecar.adopted.encoder, sidecar.adopted.temperature, Catalog(source, sidecar))
    except BaseException:
        sidecar.store.close()
        raise
    return index_of(store, None, device=device, neighbors=neighbors)


def open_index(address: str, device: str | None, *, allow_partial: bool = False) -> Index:
    """Open the sidecar and its collection; StoreError where either is missing."""
    return open_local(address, device)


def exists(address: str) -> bool:
    """Return whether there is such a folder."""
    return user_path(_parsed(address)[0]).exists()


def shown(address: str) -> str:
    """Return the address; it holds no secret."""
    return address


def _parsed(address: str) -> tuple[str, int]:
    """Return the folder, and how many rows beside the best a hit shows; ConfigError for another option."""
    folder, _, query = address.removeprefix(_SCHEME).partition("?")
    if not folder:
        raise ConfigError(f"{address}: expected adopted:FOLDER?neighbors=NUMBER")
    neighbors = 0
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "neighbors":
            raise ConfigError(f"{address}: expected the option neighbors, got {name!r}")
        if not value.isdecimal() or int(value) > _MAX_NEIGHBORS:
            raise ConfigError(f"{address}: neighbors: expected 0 to {_MAX_NEIGHBORS:,}, got {value!r}")
        neighbors = int(value)
    return folder, neighbors
