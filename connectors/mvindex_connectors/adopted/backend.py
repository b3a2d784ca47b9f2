"""The backend of faiss:FILE and adopted:FOLDER addresses, which the core finds by its entry points; both are only read.

The first is a Faiss file, see adopt_faiss(); the second a collection of others in Milvus with a sidecar, see
sync_milvus().
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from mvindex.encoder import Encoder
from mvindex.errors import ConfigError, Unsupported
from mvindex.index import Index
from mvindex.paths import user_path

_MAX_NEIGHBORS = 1_000


def _neighbors(text: str) -> int:
    if not text.isdecimal() or int(text) > _MAX_NEIGHBORS:
        raise ValueError(f"0 to {_MAX_NEIGHBORS:,}")
    return int(text)


# Of each scheme: the form of an address, and its options.
_FORMS = {"faiss": "faiss:FILE?ids=FILE", "adopted": "adopted:FOLDER?neighbors=NUMBER"}
_OPTIONS: dict[str, dict[str, Callable[[str], Any]]] = {
    "faiss": {"ids": str, "encoder": str, "temperature": float, "nprobe": int, "ef_search": int},
    "adopted": {"neighbors": _neighbors},
}
administer, has_lexical = None, False


def create(address: str, settings: Mapping[str, Any], encoder: Encoder | None) -> NoReturn:
    """Raise Unsupported: what others made is read, not made."""
    raise Unsupported(
        f"{address}: a Faiss file is read as it is, and `mvindex adopt` makes the sidecar of a collection in Milvus; "
        "create an index in a directory, or in Milvus"
    )


def open_index(address: str, device: str | None, *, allow_partial: bool = False) -> Index:
    """Open what is at the address; ConfigError for an option that is none, StoreError where something is missing."""
    scheme, path, options = _parsed(address)
    if scheme == "adopted":
        from mvindex_connectors.adopted.milvus_rows import open_sidecar

        return open_sidecar(path, device, **options)
    from mvindex.encoder.registry import load_encoder
    from mvindex_connectors.adopted.faiss_file import adopt_faiss

    if "encoder" in options:
        options["encoder"] = load_encoder(options["encoder"], device=device)
    return adopt_faiss(path, options.pop("ids", None), **options)


def exists(address: str) -> bool:
    """Return whether there is such a file or folder."""
    return user_path(_parsed(address)[1]).exists()


def shown(address: str) -> str:
    """Return the address; it holds no secret."""
    return address


def _parsed(address: str) -> tuple[str, str, dict[str, Any]]:
    """Return scheme, path and options; ConfigError for an option that is none, or a value that it does not take."""
    scheme, _, rest = address.partition(":")
    path, _, query = rest.partition("?")
    known, found = _OPTIONS[scheme], dict[str, Any]()
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise ConfigError(f"{address}: expected one of the options {', '.join(known)}, got {name!r}")
        try:
            found[name] = known[name](value)
        except ValueError as err:
            expected = f"0 to {_MAX_NEIGHBORS:,}" if name == "neighbors" else "a number"
            raise ConfigError(f"{address}: {name}: expected {expected}, got {value!r}") from err
    if not path:
        raise ConfigError(f"{address}: expected {_FORMS[scheme]}")
    return scheme, path, found
