"""What a corpus gives: rows, rejects, where they stand, and how their file was read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mvindex.corpus.options import CorpusFormat
from mvindex.records import Document


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row begins: the file as it was named, and the line (in Parquet the row), counted from 1."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Row:
    """One good row: its document, and its bytes as they stand in the file (in Parquet: the row as a JSON line)."""

    place: Place
    document: Document
    raw: bytes


@dataclass(frozen=True, slots=True)
class Reject:
    """One bad row: why it is bad, and its bytes as they stand in the file.

    Take raw before the next row: for a row that is too large it reads on in the file, piece by piece.
    """

    place: Place
    reason: str
    raw: Iterable[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How one file is read.

    columns: the names found in the header, the Parquet schema or the first JSON objects; for MS MARCO, which names
    none, "id" and "text". header: the header line as it stands, ended by a newline; None where a format has none.
    left_out: Parquet columns that no JSON metadata can hold (times, bytes, maps) or should not (vectors).
    """

    path: str
    format: CorpusFormat
    is_detected: bool
    id_field: str
    text_field: str
    title_field: str | None
    columns: tuple[str, ...]
    header: bytes | None = None
    left_out: tuple[str, ...] = ()

    @property
    def metadata_columns(self) -> tuple[str, ...]:
        """The columns that become metadata (those seen so far, for JSON)."""
        taken = {self.id_field, self.text_field, self.title_field, *self.left_out}
        return tuple(name for name in self.columns if name not in taken)

    def __str__(self) -> str:
        how = "detected" if self.is_detected else "given"
        fields = f"id = {self.id_field}, text = {self.text_field}, title = {self.title_field or '(none)'}"
        metadata = f", metadata = {', '.join(self.metadata_columns)}" if self.metadata_columns else ""
        left_out = f", left out = {', '.join(self.left_out)}" if self.left_out else ""
        return f"{self.path}: {self.format.value} ({how}): {fields}{metadata}{left_out}"
