"""What a caller may say about a corpus: its format, its field names, the largest row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mvindex.errors import ConfigError

MAX_ROW_BYTES = 64 * 2**20


class CorpusFormat(Enum):
    """The corpus formats that are read."""

    DPR = "dpr"
    MSMARCO = "msmarco"
    BEIR = "beir"
    JSONL = "jsonl"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusOptions:
    """How to read a corpus; what is None is found from the content of each file.

    format: skips the guess. id_field, text_field, title_field: names of columns or JSON fields; an empty title_field
    means that no title is taken. max_row_bytes: a longer row is rejected, and never held in memory
    whole; its newline does not count.
    """

    format: CorpusFormat | None = None
    id_field: str | None = None
    text_field: str | None = None
    title_field: str | None = None
    max_row_bytes: int = MAX_ROW_BYTES

    def __post_init__(self) -> None:
        if self.max_row_bytes < 1:
            raise ConfigError(f"max_row_bytes is {self.max_row_bytes}; wanted 1 or more")
        if self.id_field == "" or self.text_field == "":
            raise ConfigError("the id field and the text field need a name; only the title field may be empty")
        named = [name for name in (self.id_field, self.text_field, self.title_field) if name]
        if len(set(named)) < len(named):
            raise ConfigError(f"the fields {', '.join(named)} must be different ones")
        if named and self.format is CorpusFormat.MSMARCO:
            raise ConfigError("an MS MARCO collection has no header, so no field can be named; leave the format out")

    @property
    def names_fields(self) -> bool:
        """True when a field of the input is named, so that the input must have names at all."""
        return bool(self.id_field or self.text_field or self.title_field)
