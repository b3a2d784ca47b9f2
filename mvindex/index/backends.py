"""Indexes behind an address, such as milvus://host:19530/corpus, by entry points of the group mvindex.backends.

Each is named by its scheme, and is a module with the members of Backend.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, cast

from mvindex.encoder import Encoder
from mvindex.errors import ConfigError, ExtraMissing, Unsupported
from mvindex.index.index import Index
from mvindex.index.protocol import IndexProtocol
from mvindex.paths import expand_home
from mvindex.plugins import install_command
from mvindex.records import ProgressCallback, no_progress

if TYPE_CHECKING:
    from typing_extensions import Self

    from mvindex.search.request import Vector

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

    # Whether a server administers the indexes, by jobs: administer() then returns how.
    is_served: bool
    # Whether its indexes, made by create(), may have a lexical side.
    has_lexical: bool

    def administer(self, address: str) -> JobAdmin:
        """Return the administration of the index at the address, which need not exist; Unsupported without a server."""

    def create(self, address: str, settings: Mapping[str, Any], encoder: Encoder | None) -> Index:
        """Create an empty index at the address; ConfigError when there is one."""

    def open_index(self, address: str, device: str | None, *, allow_partial: bool = False) -> IndexProtocol:
        """Open the index at the address, in this process or behind a server; raise StoreError when there is none.

        allow_partial: for shards, whether those that are missing are left out.
        """

    def open_local(self, address: str, device: str | None) -> Index:
        """Open the index at the address in this process; raise Unsupported where it is behind a server."""

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
