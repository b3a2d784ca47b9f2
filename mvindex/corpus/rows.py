"""Records of a corpus: rows, rejects, their locations, and how their file was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mvindex.corpus.ids import FileIds
from mvindex.corpus.options import MSMARCO, CorpusOptions
from mvindex.corpus.roles import Roles
from mvindex.records import Document

# Of many columns so many are named.
_NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """Where a row begins: the file as the caller named it, and the line, counted from 1.

    In tables (Parquet, Arrow) and arrays of JSON the number of the row stands for the line.
    """

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Row:
    """One good row: its document, and its bytes as in the file (in Parquet: the row as a JSON line).

    has_made_id: whether the id was made from the content, as for stdin, so that equal rows are one document.
    """

    location: SourceLocation
    document: Document
    raw: bytes
    has_made_id: bool = False


@dataclass(frozen=True, slots=True)
class Reject:
    """One bad row: why it is bad, and its bytes as in the file.

    Read raw before the next row: for a row that is too large it reads on in the file, piece by piece. is_file: whether
    it stands for the rest of a file of a folder, which cannot be read; raw is empty then.
    """

    location: SourceLocation
    reason: str
    raw: Iterable[bytes]
    is_file: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How one file is read.

    Attributes:
        path: The file, as the caller named it.
        format: Name of its format.
        is_detected: Whether the format was detected; False where the caller gave it.
        id_field: Column or field of the id; None where ids are made from the file's path and the row.
        text_field: Column or field of the text; "*" where all of them make it, "" for passages.
        more_text_fields: Those whose values are joined to it.
        title_field: Column or field of the title; None for no title.
        columns: Names in the header, the Parquet schema or the first JSON objects; for MS MARCO, which names none,
            "id" and "text".
        header: The header line as in the file, ended by a newline; None where a format has none.
        numbers: Columns of CSV whose cells become numbers.
        left_out: Columns that no JSON metadata can hold (times of day, bytes, maps, CSV columns without a name) or
            should not (vectors).
        rejects_format: Format in which rejected rows of this file are written; None for its own.
        rejects_suffix: Suffix of the file of rejected rows.
        ids: Makes the ids of the rows; None where the format makes its own.

    """

    path: str
    format: str
    is_detected: bool
    id_field: str | None
    text_field: str
    title_field: str | None
    columns: tuple[str, ...]
    more_text_fields: tuple[str, ...] = ()
    header: bytes | None = None
    numbers: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    rejects_format: str | None = None
    rejects_suffix: str = ".jsonl"
    ids: FileIds | None = None

    @property
    def makes_content_ids(self) -> bool:
        """Return whether ids are made from the content: rows of stdin without a key."""
        return self.id_field is None and (self.ids is None or self.ids.label is None)

    @property
    def roles(self) -> Roles:
        """Return the fields of id, text and title."""
        return Roles(id=self.id_field, text=(self.text_field, *self.more_text_fields), title=self.title_field)

    @property
    def metadata_columns(self) -> tuple[str, ...]:
        """Return the columns that become metadata (for JSON, those seen so far)."""
        taken = self.roles.taken.union(self.left_out)
        return tuple(name for name in self.columns if name not in taken)

    def options_again(self) -> CorpusOptions:
        """Return options with which rejected rows are read as the file was, whatever they show of it."""
        roles, form = self.roles, self.rejects_format or self.format
        if form == MSMARCO:
            return CorpusOptions(format=form)
        return CorpusOptions(
            format=form, id_field=roles.id or "", text_field=",".join(roles.text), title_field=roles.title or ""
        )

    def __str__(self) -> str:
        how = "detected" if self.is_detected else "given"
        if not self.text_field:
            return f"{self.path}: {self.format} ({how})"
        text = "(all columns)" if self.roles.is_row else " + ".join(self.roles.text)
        made = "(from the content)" if self.makes_content_ids else "(from file and row)"
        fields = f"id = {self.id_field or made}, text = {text}, title = {self.title_field or '(none)'}"
        columns = {"metadata": self.metadata_columns, "numbers": self.numbers, "left out": self.left_out}
        more = "".join(f", {name} = {_some(names)}" for name, names in columns.items() if names)
        return f"{self.path}: {self.format} ({how}): {fields}{more}"


def _some(names: Sequence[str]) -> str:
    """Return the names, the first of them where there are too many to read."""
    more = f", ... ({len(names):,} in all)" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
