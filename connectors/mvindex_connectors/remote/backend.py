"""What the core finds by its entry points: an index behind a server is opened, or looked for, by its address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from mvindex.encoder import Encoder
from mvindex.errors import NoSuchIndex, Unsupported
from mvindex.index import Index
from mvindex_connectors.remote.address import parse_address
from mvindex_connectors.remote.client import IndexClient


def create(address: str, settings: Mapping[str, Any], encoder: Encoder | None) -> NoReturn:
    """Unsupported: a server serves what it was started with."""
    raise Unsupported(f"{shown(address)}: a server makes no index: make it where it is to lie, and serve it")


def open_index(address: str, device: str | None) -> Index:
    """The index there, computed on the device that its server says; NoSuchIndex for a name that is not served."""
    return IndexClient(address)


def exists(address: str) -> bool:
    """True when the server serves an index of that name; ServerUnavailable when it is away."""
    try:
        IndexClient(address).close()
    except NoSuchIndex:
        return False
    return True


def shown(address: str) -> str:
    """The address; it holds no secret."""
    return str(parse_address(address))
