"""The backend of faiss:FILE addresses, which the core finds by its entry point; see adopt_faiss()."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from mvindex.encoder import Encoder
from mvindex.encoder.registry import load_encoder
from mvindex.errors import ConfigError, Unsupported
from mvindex.index import Index
from mvindex.paths import user_path
from mvindex_connectors.adopted.faiss_file import adopt_faiss

_OPTIONS: dict[str, Callable[[str], Any]] = {
    "ids": str,
    "encoder": str,
    "temperature": float,
    "nprobe": int,
    "ef_search": int,
}


is_served, has_lexical = False, False


def administer(address: str) -> NoReturn:
    """Raise Unsupported: this process works on the index itself."""
    raise Unsupported(f"{shown(address)}: expected an index behind a server of mvindex")


def create(address: str, settings: Mapping[str, Any], encoder: Encoder | None) -> NoReturn:
    """Raise Unsupported: a Faiss file is read, not made."""
    raise Unsupported(f"{shown(address)}: a Faiss file is read as it is; create an index in a directory")


def open_local(address: str, device: str | None) -> Index:
    """Open the file; ConfigError for an option that is none."""
    path, options = _parsed(address)
    if "encoder" in options:
        options["encoder"] = load_encoder(options["encoder"], device=device)
    return adopt_faiss(path, options.pop("ids", None), **options)


def open_index(address: str, device: str | None, *, allow_partial: bool = False) -> Index:
    """Open the file; ConfigError for an option that is none."""
    return open_local(address, device)


def exists(address: str) -> bool:
    """Return whether there is such a file."""
    return user_path(_parsed(address)[0]).exists()


def shown(address: str) -> str:
    """Return the address; it holds no secret."""
    return address


def _parsed(address: str) -> tuple[str, dict[str, Any]]:
    path, _, query = address.removeprefix("faiss:").partition("?")
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise ConfigError(f"{address}: expected one of the options {', '.join(_OPTIONS)}, got {name!r}")
        try:
            found[name] = _OPTIONS[name](value)
        except ValueError as err:
            raise ConfigError(f"{address}: {name}: expected a number, got {value!r}") from err
    if not path:
        raise ConfigError(f"{address}: expected faiss:FILE?ids=FILE")
    return path, found
