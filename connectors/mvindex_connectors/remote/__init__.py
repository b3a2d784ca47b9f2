"""An index behind a server: clients, and what they share with the server: messages, errors, addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mvindex_connectors.remote.address import Access
    from mvindex_connectors.remote.async_client import AsyncIndexClient
    from mvindex_connectors.remote.client import IndexClient
    from mvindex_connectors.remote.retry import CallSettings

__all__ = ["Access", "AsyncIndexClient", "CallSettings", "IndexClient"]

_LATE = {"Access": "address", "AsyncIndexClient": "async_client", "CallSettings": "calling", "IndexClient": "client"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
