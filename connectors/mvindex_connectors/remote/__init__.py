"""Clients of a server, and what they share with it: messages, errors, addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mvindex_connectors.remote.address import Access
    from mvindex_connectors.remote.admin import ServerAdmin
    from mvindex_connectors.remote.async_client import AsyncIndexClient
    from mvindex_connectors.remote.client import IndexClient
    from mvindex_connectors.remote.retry import CallSettings
    from mvindex_connectors.remote.sharded_client import ShardedClient

__all__ = ["Access", "AsyncIndexClient", "CallSettings", "IndexClient", "ServerAdmin", "ShardedClient"]

_LAZY_EXPORTS = {
    "Access": "address",
    "AsyncIndexClient": "async_client",
    "CallSettings": "retry",
    "IndexClient": "client",
    "ServerAdmin": "admin",
    "ShardedClient": "sharded_client",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY_EXPORTS[name]}"), name)
