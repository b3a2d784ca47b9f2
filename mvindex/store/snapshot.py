"""Snapshot: one committed state of the store, unchanged by later writes.

Its settings are checked for values that no sound index has: paths that lead out, impossible sizes.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import ConfigError, DamagedIndex
from mvindex.records import Bools, Ints
from mvindex.store import catalog, schema
from mvindex.store.columns import Column, Members
from mvindex.store.connections import ReadConnection
from mvindex.store.fields import parse_filter_fields
from mvindex.store.files import read_acknowledged
from mvindex.store.generation import Generation
from mvindex.store.id_ranges import ID_RANGES_KEY
from mvindex.store.lexical.reader import PostingsCache
from mvindex.store.lexical.tokenizer import TERMS_VERSION, Lexical, StoredLexical, required_lexical
from mvindex.store.rows import FORMAT_VERSION, deleted_checksum
from mvindex.store.views import ROW_DTYPE, CommittedSegment, MappedSegment, MappedViews, ViewType

_FETCH_ROWS = 1 << 16
MAX_DIM = 65_536
# Settings that need not be there.
_OPTIONAL = frozenset(
    {
        "temperature",
        "whole_id",
        schema.LEXICAL_KEY,
        catalog.FUSION_KEY,
        catalog.CONFIDENCE_KEY,
        schema.FILTER_FIELDS_KEY,
        ID_RANGES_KEY,
    }
)
_LEXICAL = tuple(StoredLexical(kind, version).setting for kind in Lexical for version in range(2, TERMS_VERSION + 1))
_LEXICAL += tuple(kind.value for kind in Lexical)
_ENGINE_NAME = re.compile(r"engine-[a-z0-9-]{1,40}-[0-9]{6,18}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,80}")
_INDEX_ID = re.compile(r"[0-9a-f]{32}")


class _ViewsInside(NamedTuple):
    """The views of documents among the first rows, and how many they are."""

    documents: Bools
    num_rows: int
    views: Bools
    num_views: int


class Snapshot:
    """One committed state: settings, views, and `alive`: which document rows are live, (num_rows,) bool.

    checked_metadata, checked_documents: of how many rows, from the first, a filter has checked the metadata or the ids
    (see FilterReader).
    """

    def __init__(
        self,
        source: Generation,
        settings: Mapping[str, Any],
        segments: Sequence[CommittedSegment],
        alive: Bools,
        previous: Snapshot | None = None,
    ) -> None:
        """Map the state, whose settings are sound.

        previous: of the same generation; whatever it verified is not verified again.
        """
        self.source = source
        self.directory = source.directory
        self.settings: Mapping[str, Any] = settings
        # Generation and version: grows with every commit.
        self.state = source.number, int(settings["version"])
        self.dim: int | None = settings["dim"]
        self.view_type = ViewType(settings["dtype"])
        olds: Sequence[MappedSegment | None] = previous.segments if previous else [None] * len(segments)
        pairs = zip(segments, olds, strict=True)
        self.segments: list[MappedSegment] = [MappedSegment(self.directory, segment, old) for segment, old in pairs]
        self.mapped_files = [segment.file for segment in self.segments if segment.file is not None]
        self.views: MappedViews = _mapped(self.segments, self.view_type, self.dim, previous.views if previous else None)
        # Of documents, deleted ones included.
        self.num_rows = self.views.num_rows
        self.alive = alive
        self.alive.flags.writeable = False
        self.checked_metadata: int = previous.checked_metadata if previous else 0
        self.checked_documents: int = previous.checked_documents if previous else 0
        # By declared filter field, once a filter has read it.
        self.columns: dict[str, Column] = dict(previous.columns) if previous else {}
        self.members: dict[str, Members] = dict(previous.members) if previous else {}
        # Number of terms of all live documents, and of live documents that have a term, once a search has needed them.
        self.num_terms: int | None = None
        self.term_counts: dict[int, int] = {}
        # Of the last searches with a filter: its key, see FilterReader.allowed(), and which documents it leaves.
        self.filtered: tuple[tuple[Hashable, Bools], ...] = ()
        # Views of live documents, and of those that the last other search allowed.
        self._live_views: _ViewsInside | None = None
        self._allowed_views: _ViewsInside | None = None

    @cached_property
    def lexical(self) -> StoredLexical:
        """How texts are split into terms; Unsupported without a lexical index, StoreError for terms of an older one."""
        return required_lexical(self.settings.get(schema.LEXICAL_KEY), self.directory.parent)

    @cached_property
    def postings(self) -> PostingsCache:
        """The postings in memory; of an index with a lexical side."""
        return self.source.postings_of(str(self.settings[schema.LEXICAL_KEY]))

    @cached_property
    def num_documents(self) -> int:
        """Number of live documents."""
        return int(np.count_nonzero(self.alive))

    @cached_property
    def deleted(self) -> npt.NDArray[np.uint32]:
        """The rows of documents that are not live, rising."""
        return np.flatnonzero(~self.alive).astype(np.uint32)

    @cached_property
    def rows_by_ordinal(self) -> Ints:
        """The rows of live documents by rising ordinals, (num_documents,): the order in which they were first added."""
        rows = np.flatnonzero(self.alive)
        ordinals = self.views.ordinals(rows)
        if np.all(ordinals[1:] > ordinals[:-1]):
            return rows
        return rows[np.argsort(ordinals, kind="stable")]

    @property
    def num_live_views(self) -> int:
        """Number of views of live documents."""
        return self.views.count_of(self.alive)

    def views_of(self, documents: Bools, num_rows: int) -> Bools:
        """Return which views belong to the documents (num_rows,) bool; (views of the first num_rows rows,) bool."""
        return np.repeat(documents[:num_rows], self.views.counts(0, num_rows))

    def views_inside(self, documents: Bools, num_rows: int) -> tuple[Bools, int]:
        """Return what views_of() does, and the number of these views; kept for the next search with the same array."""
        is_alive = documents is self.alive
        # Read once: another thread may search with an engine of another number of rows meanwhile.
        kept = self._live_views if is_alive else self._allowed_views
        if kept is None or kept.documents is not documents or kept.num_rows != num_rows:
            views = self.views_of(documents, num_rows)
            kept = _ViewsInside(documents, num_rows, views, int(np.count_nonzero(views)))
            if is_alive:
                self._live_views = kept
            else:
                self._allowed_views = kept
        return kept.views, kept.num_views

    @property
    def generation(self) -> int:
        """The generation's number; a new one means that a compaction renumbered the document rows."""
        return self.source.number


def read_snapshot(source: Generation, previous: Snapshot | None = None) -> Snapshot:
    """Return the latest committed state of the generation; previous: an older one, of any generation.

    DamagedIndex when the catalog lacks an acknowledged commit: its log was damaged, or an older copy put in its place.
    """
    # Read first: a commit that is acknowledged later must not count as missing.
    acknowledged = read_acknowledged(source.directory)
    with source.catalog.reading() as connection:
        schema.check_application(connection, source.catalog.path)
        schema.check_schema(connection)
        same = previous if previous is not None and previous.source is source else None
        snapshot = snapshot_in(connection, source, same)
    if snapshot.settings["version"] < acknowledged:
        raise DamagedIndex(
            f"{source.catalog.path}: holds version {snapshot.settings['version']}, but version {acknowledged} was "
            "acknowledged; the catalog or its log is damaged, or an older copy stands in its place"
        )
    return snapshot


def snapshot_in(connection: ReadConnection, source: Generation, previous: Snapshot | None = None) -> Snapshot:
    """Return the state that the transaction sees; previous: of the same generation."""
    settings = _checked(source, connection.settings())
    segments = [catalog.read_committed(connection, name) for name in segment_names(settings)]
    num_rows = segments[1].size_bytes // ROW_DTYPE.itemsize
    alive = _live_rows(source, connection, settings, num_rows, previous)
    return Snapshot(source, settings, segments, alive, previous)


def segment_names(settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return the file names of a generation's views and document rows."""
    generation, suffix = int(settings["generation"]), ViewType(settings["dtype"]).suffix
    return f"views-{generation:06d}.{suffix}", f"rows-{generation:06d}.bin"


def _mapped(
    segments: Sequence[MappedSegment], view_type: ViewType, dim: int | None, previous: MappedViews | None
) -> MappedViews:
    """Map the views; DamagedIndex when the committed sizes are not those of whole rows, or views are out of order."""
    views, rows = segments
    sizes = (views, (dim or 1) * view_type.dtype.itemsize), (rows, ROW_DTYPE.itemsize)
    for segment, row_bytes in sizes:
        if segment.committed.size_bytes % row_bytes or (dim is None and segment.committed.size_bytes):
            raise DamagedIndex(
                f"{segment.path}: expected rows of {row_bytes} bytes, got {segment.committed.size_bytes} bytes"
            )
    mapped = MappedViews(views, rows, view_type.dtype, dim or 1, previous)
    if not mapped.are_in_order:
        raise DamagedIndex(f"{rows.path}: the documents' views do not follow each other")
    return mapped


def _live_rows(
    source: Generation,
    connection: sqlite3.Connection,
    settings: Mapping[str, Any],
    num_rows: int,
    previous: Snapshot | None,
) -> Bools:
    """Return which document rows are live, (num_rows,); DamagedIndex when that is not as committed.

    previous: of the same generation; where no document was deleted since, the deleted ones are not read again.
    """
    (last,) = connection.execute("SELECT max(doc_row) FROM documents").fetchone()
    alive: Bools = np.ones(num_rows, dtype=bool)
    is_sound = (-1 if last is None else last) == num_rows - 1
    if previous is not None and previous.num_rows <= num_rows and previous.settings["deleted"] == settings["deleted"]:
        alive[: previous.num_rows] = previous.alive
    else:
        count, checksum = 0, 0
        cursor = connection.execute("SELECT doc_row FROM documents INDEXED BY documents_deleted WHERE NOT alive")
        while found := cursor.fetchmany(_FETCH_ROWS):
            if not all(type(doc_row) is int and 0 <= doc_row < num_rows for (doc_row,) in found):
                raise DamagedIndex(f"{source.catalog.path}: the deleted documents are not given by row numbers")
            deleted = np.array(found, dtype=np.int64).reshape(-1)
            count, checksum = count + len(deleted), (checksum + deleted_checksum(deleted)) % (1 << 64)
            alive[deleted] = False
        is_sound &= settings["deleted"] == {"count": count, "checksum": checksum}
    if not is_sound:
        raise DamagedIndex(f"{source.catalog.path}: the set of deleted documents does not match its checksum")
    return alive


def read_checked(source: Generation, connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the settings, read anew; see _checked()."""
    return _checked(source, schema.read_settings(connection))


def _checked(source: Generation, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings; DamagedIndex names the first that is not valid for this generation."""
    expected: dict[str, tuple[str, Callable[[Any], bool]]] = {
        **_OF_VIEWS,
        "format_version": (str(FORMAT_VERSION), lambda value: value == FORMAT_VERSION),
        "generation": (str(source.number), lambda value: value == source.number),
        "index_id": (source.index_id or "32 hex digits", lambda value: _is_index_id(value, source.index_id)),
        "whole_id": ("32 hex digits, or null", lambda value: value is None or _is_index_id(value, None)),
        "version": ("a whole number from 0 on", _is_count),
        "next_ordinal": ("a whole number from 0 on", _is_count),
        "temperature": ("a number above 0, or none", lambda value: _is_temperature(value)),
        "engine": ("an engine's record, or null", lambda value: value is None or _is_engine(value)),
        "deleted": ("count and checksum", _is_deleted),
        "ids": ("counts and checksums", _are_ids),
        schema.LEXICAL_KEY: (f"{', '.join(_LEXICAL)}, or null", lambda value: value is None or value in _LEXICAL),
        catalog.FUSION_KEY: ("a method and two weights, or null", lambda value: value is None or _is_fusion(value)),
        catalog.CONFIDENCE_KEY: (
            "models of confidence, or null",
            lambda value: value is None or isinstance(value, dict),
        ),
        schema.FILTER_FIELDS_KEY: ("names of fields with their types, or null", _are_filter_fields),
        ID_RANGES_KEY: ("true, or null", lambda value: value in (True, None)),
    }
    _check(settings, expected, source.catalog.path)
    return settings


def check_kept(settings: Mapping[str, Any], path: Path) -> None:
    """Check the settings that views need; DamagedIndex names the first that is not valid."""
    _check({"dim": None, "encoder": None, **settings}, _OF_VIEWS, path)


def _check(settings: Mapping[str, Any], expected: Mapping[str, tuple[str, Callable[[Any], bool]]], path: Path) -> None:
    for name, (what, is_right) in expected.items():
        if (name not in settings and name not in _OPTIONAL) or not is_right(settings.get(name)):
            raise DamagedIndex(f"{path}: setting {name!r}: expected {what}, got {settings.get(name)!r:.80}")


def _is_dim(value: object) -> bool:
    return value is None or (isinstance(value, int) and _is_count(value) and 1 <= value <= MAX_DIM)


def _is_encoder(value: object) -> bool:
    return isinstance(value, dict) and _is_temperature(value.get("temperature"))


def _is_temperature(value: object) -> bool:
    """Return whether the value is a temperature, or None."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0 < value < math.inf
    return value is None


def _is_fusion(value: object) -> bool:
    """Return whether the value has the form of a fusion; what the method is called is for the index to judge."""
    if not isinstance(value, dict) or not isinstance(value.get("method"), str):
        return False
    weights, others = value.get("weights"), set(value) - {"method", "weights"}
    if not all(isinstance(name, str) and isinstance(value[name], int | float) for name in others):
        return False
    return isinstance(weights, list) and len(weights) == 2 and all(type(each) is float for each in weights)


def _are_filter_fields(value: object) -> bool:
    try:
        return value is None or (isinstance(value, dict) and parse_filter_fields(value) == value)
    except ConfigError:
        return False


def _is_index_id(value: object, expected: str | None) -> bool:
    return isinstance(value, str) and bool(_INDEX_ID.fullmatch(value)) and expected in (None, value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _is_engine(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("settings"), dict):
        return False
    checksums = value.get("checksums")
    has_names = isinstance(value.get("kind"), str) and bool(_ENGINE_NAME.fullmatch(str(value.get("directory"))))
    return has_names and _is_count(value.get("built_rows")) and isinstance(checksums, dict) and _are_plain(checksums)


def _are_plain(checksums: Mapping[Any, Any]) -> bool:
    """Return whether all names are those of files in the engine's own directory."""
    return all(_FILE_NAME.fullmatch(str(name)) and isinstance(digest, str) for name, digest in checksums.items())


def _are_ids(value: object) -> bool:
    pairs = [value.get(state) for state in ("live", "deleted")] if isinstance(value, dict) else []
    return bool(pairs) and all(isinstance(pair, list) and len(pair) == 2 and _is_count(pair[0]) for pair in pairs)


def _is_deleted(value: object) -> bool:
    return isinstance(value, dict) and _is_count(value.get("count")) and isinstance(value.get("checksum"), int)


_OF_VIEWS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "dtype": ("fp16 or fp32", lambda value: value in ("fp16", "fp32")),
    "dim": (f"1 to {MAX_DIM}, or null", _is_dim),
    "encoder": ("an object, or null", lambda value: value is None or _is_encoder(value)),
}
