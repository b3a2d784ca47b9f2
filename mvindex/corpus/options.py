"""Options of reading a corpus: its format, its field names, the largest row."""

from __future__ import annotations

from dataclasses import dataclass

from mvindex.errors import ConfigError
from mvindex.records import MAX_DOCUMENT_CHARS

MAX_ROW_BYTES = 64 * 2**20
MAX_FILE_BYTES = 100 * 2**20
PASSAGE_WORDS = 200
MSMARCO = "msmarco"
# A text field that stands for all of them.
ALL_FIELDS = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusOptions:
    """How to read a corpus; what is None is detected from the content of each file.

    Attributes:
        format: Name of a format of mvindex.corpus.registry, which is then not detected.
        id_field: Name of the column or JSON field of the id; "" for ids made from file and row.
        text_field: Name of the column or JSON field of the text; several, with commas between, are joined; "*" makes
            a text of all of them, `part: PX-1037; maker: Orbitex`.
        title_field: Name of the column or JSON field of the title; "" for no title.
        max_row_bytes: A longer row, without its newline, is rejected, and never held in memory whole.
        passage_words: Files of prose are split into passages of at most so many words.
        max_file_bytes: A larger file is rejected if its format is read as a whole.
        max_document_chars: A row whose title and text have more characters is rejected.

    """

    format: str | None = None
    id_field: str | None = None
    text_field: str | None = None
    title_field: str | None = None
    max_row_bytes: int = MAX_ROW_BYTES
    passage_words: int = PASSAGE_WORDS
    max_file_bytes: int = MAX_FILE_BYTES
    max_document_chars: int = MAX_DOCUMENT_CHARS

    def __post_init__(self) -> None:
        for name in ("max_row_bytes", "passage_words", "max_file_bytes", "max_document_chars"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if self.text_field is not None and not self.text_field.strip(" ,"):
            raise ConfigError(
                f"text_field is {self.text_field!r}; expected the name of a field, or several: title,body"
            )
        named = [name for name in (self.id_field, self.text_field, self.title_field) if name]
        if len(set(named)) < len(named):
            raise ConfigError(f"the fields {', '.join(named)} must differ")
        if named and self.format == MSMARCO:
            raise ConfigError("an MS MARCO collection has no header, so no field can be named; leave the format out")

    @property
    def names_fields(self) -> bool:
        """Return whether a field of the input is named, so that the input must name its fields."""
        return bool(self.id_field or self.text_field or self.title_field)
