"""The backend of grpc:// and grpcs:// addresses, which the core finds by its entry point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from mvindex.encoder import Encoder
from mvindex.errors import NoSuchIndex, Unsupported
from mvindex.index.protocol import IndexProtocol
from mvindex_connectors.remote.address import parse_address
from mvindex_connectors.remote.admin import ServerAdmin
from mvindex_connectors.remote.client import IndexClient
from mvindex_connectors.remote.sharded_client import ShardedClient

has_lexical = False


def administer(address: str) -> ServerAdmin:
    """Return the administration of the index at the address; Unsupported for several addresses."""
    if "," in address:
        raise Unsupported(f"{shown(address)}: expected the address of one server; administer each by itself")
    return ServerAdmin(address)


def create(address: str, settings: Mapping[str, Any], encoder: Encoder | None) -> NoReturn:
    """Raise Unsupported: a server creates indexes by jobs only."""
    raise Unsupported(f"{shown(address)}: an index of a server is created by a job: mvindex admin create")


def open_index(address: str, device: str | None, *, allow_partial: bool = False) -> IndexProtocol:
    """Open a client of the index, or of the shards behind several addresses with commas between.

    Its server decides the device. NoSuchIndex if the name is not served.
    """
    urls = address.split(",")
    return IndexClient(address) if len(urls) == 1 else ShardedClient(urls, allow_partial=allow_partial)


def exists(address: str) -> bool:
    """Return whether the server serves an index of that name; ServerUnavailable if it cannot be reached."""
    try:
        for url in address.split(","):
            IndexClient(url).close()
    except NoSuchIndex:
        return False
    return True


def shown(address: str) -> str:
    """Return the address for messages; it holds no secret."""
    return ",".join(str(parse_address(url)) for url in address.split(","))
