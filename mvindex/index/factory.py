"""Indexes by their place: created, opened, or behind an address such as milvus://host:19530/corpus.

Addresses are named by their schemes, entry points of the group mvindex.backends: modules with the members of Backend.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np

from mvindex.encoder import Encoder, EncoderLike
from mvindex.encoder.registry import as_encoder, leave_form
from mvindex.errors import ConfigError, ExtraMissing, QueryError, Unsupported
from mvindex.index.administration import LocalAdmin
from mvindex.index.index import Index, store_of
from mvindex.index.protocol import IndexProtocol
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.paths import expand_home, user_path
from mvindex.plugins import install_command
from mvindex.records import ProgressCallback, no_progress, plain_value
from mvindex.search.local import LocalSearch
from mvindex.store import catalog, schema
from mvindex.store.create import create_store
from mvindex.store.embedded import EmbeddedStore, LocalStore
from mvindex.store.fields import parse_filter_fields
from mvindex.store.lexical.tokenizer import AUTO, NONE, parse_lexical
from mvindex.store.shard_layout import ShardPlace, check_place, checked_count, create_shard, create_shards, is_sharded
from mvindex.store.sharded import open_sharded_store, open_single_shard
from mvindex.store.snapshot import MAX_DIM
from mvindex.store.views import ViewType

if TYPE_CHECKING:
    from typing_extensions import Self

    from mvindex.search.request import Vector

logger = logging.getLogger(__name__)

GROUP = "mvindex.backends"
EXPORTS = "mvindex.exports"
IMPORTS = "mvindex.imports"
_ADDRESS = re.compile(r"([a-z][a-z0-9+-]+):(?!\\)")


class JobHandle(Protocol):
    """A job of a server."""

    id: str

    def wait(self, timeout_s: float | None = None, on_progress: ProgressCallback = no_progress) -> Mapping[str, Any]:
        """Wait until the job has ended, and return its report; raise the server's error where it failed."""


class JobAdmin(Protocol):
    """Administration of an index behind a server: each method starts a job, and jobs go on without their callers."""

    def __enter__(self) -> Self:
        """Return the administration, to be closed at the end of the with block."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the connection."""

    def create(  # noqa: PLR0913 - each argument is a setting of the index
        self,
        *,
        encoder: str | None = None,
        dim: int | None = None,
        dtype: str | None = None,
        shards: int | None = None,
        lexical: str | None = None,
        filter_fields: Mapping[str, str] | None = None,
    ) -> JobHandle:
        """Create the index."""

    def drop(self, confirm: str) -> JobHandle:
        """Remove the index; confirm: its name again."""

    def build(
        self, kind: str | None = None, *, parameters: Mapping[str, int] | None = None, target_recall: float = 0.98
    ) -> JobHandle:
        """Build an engine and make it the active one."""

    def tune(self, queries: Vector | None = None, *, top_k: int = 10, target_recall: float = 0.98) -> JobHandle:
        """Choose search parameters by measured recall."""

    def compact(self) -> JobHandle:
        """Give back the space of deleted and replaced documents."""

    def snapshot(self, name: str) -> JobHandle:
        """Copy the index to a new name in a folder of the server's."""

    def jobs(self) -> Sequence[Any]:
        """Return the jobs of the server."""

    def cancel(self, job_id: str) -> Any:
        """Ask a job to stop."""


class Backend(Protocol):
    """Creates and opens indexes of one scheme."""

    # Returns the administration, by jobs, of the index at an address, which need not exist; None where this process
    # works on the indexes itself, so that open_index() returns an Index.
    administer: Callable[[str], JobAdmin] | None
    # Whether its indexes, made by create(), may have a lexical side.
    has_lexical: bool

    def create(self, address: str, settings: Mapping[str, Any], encoder: Encoder | None) -> Index:
        """Create an empty index at the address; ConfigError when there is one."""

    def open_index(self, address: str, device: str | None, *, allow_partial: bool = False) -> IndexProtocol:
        """Open the index at the address, in this process or behind a server; raise StoreError when there is none.

        allow_partial: for shards, whether those that are missing are left out.
        """

    def exists(self, address: str) -> bool:
        """Return whether there is anything at the address."""

    def shown(self, address: str) -> str:
        """Return the address without secrets."""


def find_backend(place: str | PathLike[str]) -> Backend | None:
    """Return the backend of an address; None for a directory. Unsupported for a URL scheme that no backend has."""
    text = expand_home(place)
    found = _ADDRESS.match(text)
    if found is None:
        return None
    schemes = {entry.name: entry for entry in entry_points(group=GROUP)}
    if found[1] in schemes:
        return _loaded(schemes[found[1]])
    if "://" not in text:
        return None
    if found[1] in ("http", "https"):
        raise Unsupported(
            f"{found[1]}://...: an index of `mvindex serve` is opened by its gRPC port (7700 by default); expected "
            f"{'grpcs' if found[1] == 'https' else 'grpc'}://HOST:PORT/NAME"
        )
    names = ", ".join(sorted(schemes)) or "none"
    raise Unsupported(
        f"{found[1]}://...: indexes behind such a URL are not supported by this version; give a directory, or an "
        f"address of one of: {names}"
    )


def _loaded(entry: EntryPoint) -> Backend:
    """Load an entry point; raise ExtraMissing, with the command, when a package that it needs is missing."""
    try:
        return cast(Backend, entry.load())
    except ModuleNotFoundError as err:
        extra = entry.extras[0] if entry.extras else "all"
        raise ExtraMissing(f"{entry.name}:// needs the package {err.name!r}: {install_command(extra)}") from err


def find_exporter(
    format: str, others: Sequence[str] = ()
) -> Callable[[Index, Path, Callable[[str, int, int | None], None]], Any]:
    """Return the function that exports to a format; ConfigError lists the formats, `others` among them."""
    formats = {entry.name: entry for entry in entry_points(group=EXPORTS)}
    if format not in formats:
        names = ", ".join(sorted({*formats, *others})) or "none"
        raise ConfigError(f"expected an export format ({names}), got {format!r}")
    return cast("Callable[[Index, Path, Callable[[str, int, int | None], None]], Any]", formats[format].load())


def find_importer(source: str) -> Callable[..., Any]:
    """Return the function that imports files of a kind; ConfigError lists the kinds, ExtraMissing names a package."""
    kinds = {entry.name: entry for entry in entry_points(group=IMPORTS)}
    if source not in kinds:
        raise ConfigError(f"nothing installed imports {source!r}; expected one of {', '.join(sorted(kinds)) or 'none'}")
    return cast("Callable[..., Any]", kinds[source].load())


def create(  # noqa: PLR0913 - each argument is a setting of the index
    path: str | Path,
    *,
    encoder: EncoderLike | None = None,
    family: str | None = None,
    max_views: int | Literal["auto"] | None = None,
    dim: int | None = None,
    dtype: str = "fp16",
    temperature: float | None = None,
    prune_views: float | None = None,
    shards: int | None = None,
    lexical: str | None = None,
    filter_fields: Mapping[str, str] | None = None,
) -> Index:
    """Create an empty index.

    An encoder of a checkpoint gets its ONNX form if it has none yet, which takes seconds once
    (docs/how-to/checkpoints.md).

    Args:
        path: A directory, or an address such as milvus://host:19530/corpus (docs/how-to/milvus.md).
        encoder: An Encoder, or what load_encoder() takes: "minilm-views", a directory, a hub id,
            "openai:URL#model", a SentenceTransformer, or a function that returns an (n, d) array for n texts.
        family: How views are made, as load_encoder() takes it: "snippets" by default, "single" for one of a document.
        max_views: The most views a document gets, as load_encoder() takes it.
        dim: Instead of an encoder: the dimensions of given vectors; the index then takes add_views() and vector
            queries only.
        dtype: "fp16" or "fp32", how views are stored.
        temperature: T of DRPQ scoring; the encoder's by default, else 1.0.
        prune_views: Euclidean distance within which views, as stored, of one document count as near-duplicates, of
            which one is stored. No score by best view is lower by more than that times the query's norm
            (docs/how-to/pruning.md).
        shards: Number of stores that the documents are spread over, by their ids (docs/how-to/sharding.md).
        lexical: The terms of lexical search: "unicode", "english" (stems), "auto" (which of them suits the first
            documents), or "none" for no lexical search until enable_lexical(). "auto" by default with an encoder in a
            directory or in Milvus, else "none" (docs/how-to/hybrid.md).
        filter_fields: Metadata fields that filters compare often, name to type, as set_filter_fields() takes them.

    Raises:
        ConfigError: When the path exists, for neither or both of encoder and dim, or for an invalid value.

    """
    if encoder is None and not (family is None and max_views is None):
        raise ConfigError("family and max_views: expected an encoder=, whose views they are about")
    settings, loaded = new_settings(
        encoder=None if encoder is None else as_encoder(encoder, family, max_views),
        dim=dim,
        dtype=dtype,
        temperature=temperature,
        prune_views=prune_views,
        lexical=lexical or default_lexical(path, has_texts=encoder is not None),
        filter_fields=filter_fields,
    )
    index = create_index(path, settings, loaded, shards)
    leave_form(loaded, logger.warning)
    return index


def default_lexical(path: str | Path, *, has_texts: bool) -> str:
    """Return the lexical= of a new index of texts, or of vectors alone, at a path or address."""
    backend = find_backend(path)
    return AUTO if has_texts and (backend is None or backend.has_lexical) else NONE


def create_index(path: str | Path, settings: dict[str, Any], encoder: Encoder | None, shards: int | None) -> Index:
    """Create an empty index of what new_settings() returns; otherwise as create(), without a form for the encoder."""
    if (backend := find_backend(path)) is not None:
        has_lexical = schema.LEXICAL_KEY in settings or catalog.CHOOSE_LEXICAL_KEY in settings
        has_fields = bool(settings.pop(schema.FILTER_FIELDS_KEY, None))
        for name, is_given in (
            ("lexical", has_lexical and not backend.has_lexical),
            ("shards", shards is not None),
            ("filter_fields", has_fields),
        ):
            if is_given:
                places = "a directory or in Milvus" if name == "lexical" else "a directory"
                raise ConfigError(f"{backend.shown(str(path))}: {name}= belongs to an index in {places}")
        return backend.create(str(path), settings, encoder)
    if shards is not None:
        create_shards(user_path(path), checked_count(shards), settings)
        return local_index(open_sharded_store(user_path(path)), encoder)
    create_store(user_path(path), settings)
    return local_index(EmbeddedStore(user_path(path)), encoder)


def open_index(
    path: str | Path | Sequence[str],
    *,
    encoder: EncoderLike | None = None,
    device: str | None = None,
    allow_partial: bool = False,
) -> IndexProtocol:
    """Open an index, in this process or behind a server.

    Args:
        path: A directory, or an address of an installed backend, such as grpc://host:port/name
            (docs/how-to/serving.md).
            Several addresses, in a list or with commas between, are searched as one index (docs/how-to/sharding.md).
        encoder: The encoder that the index was made with; by default it is loaded when it is first needed.
        device: Where the encoder runs, the best there is by default; with "cuda" exact scans run there as well.
        allow_partial: For shards: leave out those that are missing or damaged; every result says so.

    Raises:
        StoreError: When there is no index.
        ConfigError: When the given encoder is another one.

    """
    place = ",".join(map(str, path)) if isinstance(path, list | tuple) else cast("str | Path", path)
    backend = find_backend(place)
    if backend is None and isinstance(path, list | tuple):
        raise ConfigError(f"{place}: expected the addresses of servers, such as grpc://host:port/name, got a directory")
    if backend is None or encoder is not None:
        return open_local(place, encoder=encoder, device=device, allow_partial=allow_partial)
    return backend.open_index(str(place), device, allow_partial=allow_partial)


def open_local(
    path: str | Path,
    *,
    encoder: EncoderLike | None = None,
    device: str | None = None,
    allow_partial: bool = False,
) -> Index:
    """Open an index that this process works on itself: a directory or an index in Milvus; see open_index().

    Raises:
        Unsupported: For an index behind a server.

    """
    backend = find_backend(path)
    if backend is not None:
        if backend.administer is not None:
            raise Unsupported(
                f"{backend.shown(str(path))}: this works on the index itself, which a server has; do it where the "
                "server is"
            )
        index = cast(Index, backend.open_index(str(path), device))
    elif is_sharded(user_path(path)):
        index = local_index(open_sharded_store(user_path(path), allow_partial=allow_partial), None, device)
    else:
        index = local_index(EmbeddedStore(user_path(path)), None, device)
    try:
        if encoder is not None:
            index.use_encoder(encoder)
    except BaseException:
        index.close()
        raise
    return index


def local_index(store: LocalStore, encoder: Encoder | None = None, device: str | None = None) -> Index:
    """Compose an index of embedded stores."""
    search = LocalSearch(store, device)
    return Index(store, search, LocalAdmin(store, search), encoder, device)


def index_exists(path: str | Path) -> bool:
    """Return whether there is an index, or anything else, at the path or address."""
    backend = find_backend(path)
    return os.path.lexists(expand_home(path)) if backend is None else backend.exists(str(path))


def remove_untouched(index: Index) -> None:
    """Close the index, and remove it if nothing was ever stored in it, by anyone."""
    store_of(index).remove_if_untouched()


def create_shard_index(path: Path, place: ShardPlace, **chosen: Any) -> Index:
    """Create an empty shard of the index at path, to be filled on its own from a whole corpus.

    Args:
        path: The directory of the index.
        place: Which shard, of how many.
        **chosen: Settings as create() takes them: encoder, dim and so on.

    Raises:
        ConfigError: When the shard exists, or the index has another count of shards.

    """
    check_place(path, place)
    settings, encoder = new_settings(**chosen)
    create_shard(path, place, settings)
    return local_index(open_single_shard(path, place), encoder)


def open_shard_index(path: Path, place: ShardPlace, device: str | None = None) -> Index:
    """Open a shard of the index at path, to be filled on its own from a whole corpus.

    Raises:
        StoreError: When the shard is missing.
        ConfigError: When the index has another count of shards.

    """
    return local_index(open_single_shard(path, place), None, device)


def has_shard(path: Path, place: ShardPlace) -> bool:
    """Return whether the shard was begun."""
    return os.path.lexists(path / place.directory)


def new_settings(  # noqa: PLR0913 - each argument is a setting of the index
    *,
    encoder: EncoderLike | None = None,
    dim: int | None = None,
    dtype: str = "fp16",
    temperature: float | None = None,
    prune_views: float | None = None,
    lexical: str = NONE,
    filter_fields: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], Encoder | None]:
    """Return the checked settings of a new index, and its encoder; see create()."""
    if (encoder is None) == (dim is None):
        raise ConfigError(
            "create(): expected encoder=, such as 'minilm-views' (for texts), or dim= (for given vectors), not both"
        )
    if dim is not None:
        dim = checked_dim(dim)
    if dtype not in [view_type.value for view_type in ViewType]:
        raise ConfigError(f"dtype: expected fp16 or fp32, got {dtype!r}")
    eps = None
    if prune_views is not None:
        from mvindex.ingest.views import check_eps

        eps = check_eps(prune_views)
    loaded = None if encoder is None else as_encoder(encoder)
    spec = None if loaded is None else dict(loaded.spec)
    dim = dim if loaded is None else loaded.dim
    if temperature is None:
        temperature = float((spec or {}).get("temperature", 1.0))
    temperature = plain_value(temperature)
    check_temperature(temperature)
    settings = {"dim": dim, "dtype": dtype, "encoder": spec, "temperature": temperature, "prune_views": eps}
    if fields := parse_filter_fields(filter_fields):
        settings[schema.FILTER_FIELDS_KEY] = fields
    if lexical == AUTO:
        settings[catalog.CHOOSE_LEXICAL_KEY] = True
    elif lexical != NONE:
        parse_lexical(lexical)
        settings["lexical"] = lexical
    return settings, loaded


def checked_dim(dim: object) -> int:
    """Return dimensions that an index may have; ConfigError for others."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or not 1 <= dim <= MAX_DIM:
        raise ConfigError(f"dim: expected a whole number from 1 to {MAX_DIM}, got {dim!r:.60}")
    return int(dim)


def check_temperature(value: object) -> None:
    """Raise ConfigError when DRPQ cannot divide by this."""
    try:
        Scoring(Aggregate.DRPQ, value)  # type: ignore[arg-type]  # whatever the caller gave
    except QueryError as err:
        raise ConfigError(str(err)) from err
