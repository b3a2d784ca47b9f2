"""Clients of a server, and what they share with it: messages, errors, addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mvindex.plugins import lazy_names

if TYPE_CHECKING:
    from mvindex_connectors.remote.address import Access
    from mvindex_connectors.remote.admin import ServerAdmin
    from mvindex_connectors.remote.async_client import AsyncIndexClient
    from mvindex_connectors.remote.client import IndexClient
    from mvindex_connectors.remote.retry import CallSettings
    from mvindex_connectors.remote.sharded_client import ShardedClient

__all__ = ["Access", "AsyncIndexClient", "CallSettings", "IndexClient", "ServerAdmin", "ShardedClient"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Access": "address",
        "AsyncIndexClient": "async_client",
        "CallSettings": "retry",
        "IndexClient": "client",
        "ServerAdmin": "admin",
        "ShardedClient": "sharded_client",
    },
)
