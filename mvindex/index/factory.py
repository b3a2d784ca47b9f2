"""An index is made, opened, or removed again: create() and open_index()."""

from __future__ import annotations

import os
from pathlib import Path

from mvindex.errors import ConfigError
from mvindex.index import Index
from mvindex.index.backends import find_backend
from mvindex.index.options import EncoderLike, as_encoder, new_settings
from mvindex.index.sharded import create_sharded, open_sharded
from mvindex.store.embedded import EmbeddedStore, create_store
from mvindex.store.shard_layout import is_sharded


def create(  # noqa: PLR0913 - each argument is a setting of the index
    path: str | Path,
    *,
    encoder: EncoderLike | None = None,
    dim: int | None = None,
    dtype: str = "fp16",
    temperature: float | None = None,
    prune_views: float | None = None,
    shards: int | None = None,
    lexical: str | None = None,
) -> Index:
    """A new empty index at path: a directory, or an address such as milvus://host:19530/corpus (docs/milvus.md).

    encoder: an Encoder, any callable (see CallableEncoder), or what load_encoder() takes ("minilm", a directory, a
    hub id). dim alone makes an index of given vectors: it takes add_views() and vector queries only. dtype: fp16 or
    fp32, how views are stored. temperature: of DRPQ scoring; the encoder's by default, else 1.0. prune_views: views
    that lie, as stored, within this Euclidean distance of a kept one of their document are not stored, now or later; so
    no score by best view is lower by more than that times the query's norm (docs/pruning.md). shards: the documents are
    put into so many stores, by their ids (docs/sharding.md); the answers are the same. lexical: "unicode" or
    "english" (words by their stems), and texts can be searched by their words too (docs/hybrid.md); None: they cannot,
    until set_lexical(). ConfigError when the path exists, for neither or both of encoder and dim, or for a value that
    is none.
    """
    settings, loaded = new_settings(
        encoder=encoder, dim=dim, dtype=dtype, temperature=temperature, prune_views=prune_views, lexical=lexical
    )
    if (backend := find_backend(path)) is not None:
        if lexical is not None:
            raise ConfigError(f"{backend.shown(str(path))}: a lexical side belongs to an index in a directory")
        if shards is not None:
            raise ConfigError(f"{backend.shown(str(path))}: shards belong to an index in a directory")
        return backend.create(str(path), settings, loaded)
    if shards is not None:
        return create_sharded(Path(path), shards, settings, loaded)
    create_store(Path(path), settings)
    return Index(EmbeddedStore(Path(path)), loaded)


def open_index(
    path: str | Path,
    *,
    encoder: EncoderLike | None = None,
    device: str | None = None,
    allow_partial: bool = False,
) -> Index:
    """The index at path, a directory or an address. Its encoder is loaded when first needed, or may be given.

    path: a directory, or a URL of an installed backend, such as grpc://host:port/name of a server (docs/serving.md).
    device: where the encoder runs, the best there is by default; with "cuda" exact scans run there as well.
    allow_partial: of an index in shards, some may be missing or damaged; the others answer, and every result says so.

    StoreError when there is no index; ConfigError when the given encoder is another one.
    """
    index: Index
    if (backend := find_backend(path)) is not None:
        index = backend.open_index(str(path), device)
    elif is_sharded(Path(path)):
        index = open_sharded(Path(path), device, allow_partial=allow_partial)
    else:
        index = Index(EmbeddedStore(Path(path)), None, device)
    try:
        if encoder is not None:
            index.use_encoder(as_encoder(encoder))
    except BaseException:
        index.close()
        raise
    return index


def index_exists(path: str | Path) -> bool:
    """True when there is an index, or anything else, at the path or address."""
    backend = find_backend(path)
    return os.path.lexists(path) if backend is None else backend.exists(str(path))


def remove_untouched(index: Index) -> None:
    """Nothing; the index is closed, and gone if nothing was ever stored in it, by anyone."""
    index.remove_untouched()
