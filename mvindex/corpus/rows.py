"""A row of a corpus: the options it is read by, its columns' roles, its id, and the records of a reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import xxhash

from mvindex.corpus.text.words import UNSPACED, unset
from mvindex.errors import ConfigError, CorpusError
from mvindex.records import MAX_DOCUMENT_CHARS, MAX_ID_CHARS, Document

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


# Of an id behind its file's label.
MAX_PLACE_CHARS = 300
_MAX_LABEL_CHARS = MAX_ID_CHARS - MAX_PLACE_CHARS - 60


def content_id(title: str, text: str) -> str:
    """Return the id of a document that was given none: 32 hex digits of its content, the same in every run."""
    return _hash_of(f"{title}\n{text}")


def short_label(label: str) -> str:
    """Return what the ids of a file begin with; a longer path would leave no room for the rest of an id."""
    return label if len(label) <= _MAX_LABEL_CHARS else _hash_of(label)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIds:
    """Makes the ids of a file's rows, so that other files do not matter: shop/parts.csv#row-39, shop/parts.csv#PX-1037.

    Attributes:
        file: The path of the file in metadata.
        label: What its ids begin with; None for stdin, whose rows get ids of their content.
        in_folder: Whether the file is one of a folder, so that another may have the same keys.

    """

    file: str
    label: str | None = None
    in_folder: bool = False

    def of_key(self, key: str) -> str:
        """Return the id of a row that has a key."""
        if not self.in_folder or self.label is None or not key.strip():
            return key
        doc_id = f"{short_label(self.label)}#{key}"
        return doc_id if len(doc_id) <= MAX_ID_CHARS or len(key) > MAX_ID_CHARS else self.of_key(_hash_of(key))

    def of_row(self, number: int) -> str | None:
        """Return the id of the row of this line or number, which has no key; None for stdin."""
        return None if self.label is None else f"{short_label(self.label)}#row-{number}"


def _hash_of(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


# Of the files of a folder.
_FOLDER_FIELDS = ("file", "folder", "folder_path")


def row_text(cells: Iterable[tuple[str, Any]]) -> str:
    """Return the cells that hold something as one line: `part: PX-1037; maker: Orbitex; stock: 583`."""
    named = [
        (name if name.isalnum() else " ".join(name.split()), text)
        for name, value in cells
        if (text := cell_text(value))
    ]
    return "; ".join([f"{name}: {text}" if name else text for name, text in named])


def cell_text(value: Any) -> str:
    """Return a value as a text of one line; "" for none, and for lists of fractions, which are vectors and no text."""
    if isinstance(value, str):
        # Most cells are one word: the rest takes three times as long.
        return value if value.isascii() and value.isalnum() else " ".join(unset(value).split())
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "" if any(isinstance(one, float) for one in value) else ", ".join(filter(None, map(cell_text, value)))
    return json.dumps(value, ensure_ascii=False, default=str)


def place_row(metadata: Mapping[str, Any], **place: Any) -> dict[str, Any]:
    """Return the metadata of a row with its place; a column of the name `line` becomes `column_line`."""
    taken = {*place, *_FOLDER_FIELDS}
    return {(f"column_{name}" if name in taken else name): value for name, value in metadata.items()} | place


METADATA = "metadata"
VIEW_TEXTS = "view_texts"
# Tried in this order, in any case. A column of one of the first two is the id whatever it holds.
ID_NAMES = tuple(
    "id _id doc_id docid did docno document_id pid passage_id passageid #id uid uuid guid key url uri".split()
)
TEXT_NAMES = tuple(
    "text body content contents page_content passage abstract document description context paragraph summary".split()
)
TITLE_NAMES = ("title", "name", "heading", "headline", "subject")
_CERTAIN_IDS = frozenset(ID_NAMES[:2])
# Names of texts that tables of things have too, for a few words.
_VAGUE_TEXTS = frozenset(("description", "summary"))
# Words of a text, on average: of prose among other columns, of these others at most, and of prose that may repeat.
_SENTENCE_WORDS = 8
_SHORT_WORDS = 5
_LONG_WORDS = 20
# A few rows without an id, or with that of another, are bad rows in a column of ids.
_FEW_BAD = 0.9
_SHOWN_NAMES = 20
_SHOWN_CHARS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The columns or fields that make a document.

    Attributes:
        id: None where the id is made from file and row, or the content.
        text: One or more; their values are joined by a blank line. ALL_FIELDS for one line of all fields.
        title: None for no title.
        taken: Those, and the fields that are no metadata in any file.

    """

    id: str | None = "id"
    text: tuple[str, ...] = ("text",)
    title: str | None = "title"
    taken: frozenset[str | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        own = () if self.is_row else (*self.text, self.title)
        object.__setattr__(self, "taken", frozenset((self.id, *own, METADATA, VIEW_TEXTS)))

    @property
    def is_row(self) -> bool:
        """Return whether all fields make the text; they are metadata too."""
        return self.text == (ALL_FIELDS,)

    def join_text(self, texts: Sequence[str]) -> str:
        """Return the values of the text's columns as one text; empty ones are left out."""
        return texts[0] if len(texts) == 1 else "\n\n".join(text for text in texts if text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns (or JSON fields) of a file or table.

    Attributes:
        place: The file, for messages.
        kind: "column" or "field".
        names: Their names.
        sample: Returns the first rows; called where names do not decide.

    """

    place: str
    kind: str
    names: tuple[str, ...]
    sample: Callable[[], Sequence[Mapping[str, Any]]]


def find_roles(columns: Columns, options: CorpusOptions) -> Roles:
    """Return the columns that the options name, the rest guessed by their names and the first rows.

    The text is a column of prose. Where no column is clearly that, all of them make the text of a row: `part: PX-1037;
    stock: 583`. The only column beside an id is the text, also if its name is that of a title.

    Raises:
        CorpusError: A named column is missing, or no column holds anything that makes a text.

    """
    named = named_roles(columns, options)
    taken = set(named.taken)
    id_field, text, title = named.id, named.text, named.title
    if options.id_field is None:
        id_field = _guess_id(columns, taken)
        taken.add(id_field)
    if options.title_field is None:
        title = _guess_title(columns, taken)
        taken.add(title)
    if not text and title is not None and _is_only_column(columns, options, taken):
        return Roles(id=id_field, text=(title,), title=None)
    return Roles(id=id_field, text=text or _guess_text(columns, taken), title=title)


def named_roles(columns: Columns, options: CorpusOptions) -> Roles:
    """Return the columns that the options name, () and None for others; CorpusError where one does not exist."""
    roles = Roles(
        id=options.id_field or None,
        text=text_columns(options.text_field, columns.names) if options.text_field else (),
        title=options.title_field or None,
    )
    check_roles(columns, roles)
    return roles


def check_roles(columns: Columns, roles: Roles) -> None:
    """Raise CorpusError where a column of the roles does not exist."""
    for name in (roles.id, *(() if roles.is_row else roles.text), roles.title):
        if name is not None and name not in columns.names:
            raise CorpusError(
                f'{columns.place}: has no {columns.kind} "{name:.60}" ({columns.kind}s: {list_names(columns.names)}); '
                "name the right ones with --id-field, --text-field and --title-field"
            )


def text_columns(text_field: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a text field names: one, also one with a comma in its name, or several with commas."""
    names = (name.strip() for name in text_field.split(","))
    return (text_field,) if text_field in columns else tuple(dict.fromkeys(name for name in names if name))


def list_names(names: Sequence[str]) -> str:
    """Join the names, shortened where a row of text is in their place."""
    shown = [name if len(name) <= _SHOWN_CHARS else name[:_SHOWN_CHARS] + "..." for name in names[:_SHOWN_NAMES]]
    return ", ".join(shown + ["..."] * (len(names) > _SHOWN_NAMES))


def _matching(columns: Columns, known: Sequence[str], taken: set[str | None]) -> list[str]:
    """Return the columns of these names that have no role yet, the most likely first."""
    places = {name: place for place, name in enumerate(known)}
    found = [name for name in columns.names if name.casefold() in places and name not in taken]
    return sorted(found, key=lambda name: places[name.casefold()])


def _guess_id(columns: Columns, taken: set[str | None]) -> str | None:
    return next((name for name in _matching(columns, ID_NAMES, taken) if _may_be_id(columns, name)), None)


def _may_be_id(columns: Columns, name: str) -> bool:
    """Return whether the values of the first rows are ids: nearly all are there, and nearly each of them once."""
    if name.casefold() in _CERTAIN_IDS:
        return True
    values = [row.get(name) for row in columns.sample()]
    ids = [value for value in values if type(value) is int or (isinstance(value, str) and value.strip())]
    return len(ids) > _FEW_BAD * len(values) and len(set(ids)) > _FEW_BAD * len(ids)


def _guess_title(columns: Columns, taken: set[str | None]) -> str | None:
    """Return the first column of a title's name, if it has the first of these names or holds strings."""
    found = _matching(columns, TITLE_NAMES, taken)
    return next((name for name in found if name == TITLE_NAMES[0] or _holds_strings(columns, name)), None)


def _holds_strings(columns: Columns, name: str) -> bool:
    values = [value for row in columns.sample() if (value := row.get(name)) is not None]
    return all(isinstance(value, str) for value in values)


def _is_only_column(columns: Columns, options: CorpusOptions, taken: set[str | None]) -> bool:
    return columns.kind == "column" and options.title_field is None and not _without_role(columns, taken)


def _guess_text(columns: Columns, taken: set[str | None]) -> tuple[str, ...]:
    """Return the column that is clearly prose, else that all of them make the text.

    Of JSON, whose later records may have other fields, "text" where the first ones have nothing beside an id and title.
    """
    names = _without_role(columns, taken)
    known = _matching(columns, TEXT_NAMES, taken)
    if known[:1] == [TEXT_NAMES[0]]:
        return (TEXT_NAMES[0],)
    if not names and columns.kind == "field":
        return (TEXT_NAMES[0],)
    sample = columns.sample()
    found = {name: _Values.of([row.get(name) for row in sample]) for name in names}
    names = [name for name in names if found[name].has_any]
    named = [name for name in known if found[name].num_texts and name.casefold() not in _VAGUE_TEXTS]
    if len(names) == 1 and (named == names or found[names[0]].has_phrases):
        return (names[0],)
    if prose := [name for name in named if found[name].has_phrases and found[name].are_own]:
        return (prose[0],)
    longest = max(names, key=lambda name: found[name].words, default="")
    others = (found[name].words for name in names if name != longest)
    if longest and found[longest].is_prose and all(words < _SHORT_WORDS for words in others):
        return (longest,)
    if not names:
        raise CorpusError(
            f"{columns.place}: expected a {columns.kind} of texts, got {list_names(columns.names)}; "
            "name it with --text-field"
        )
    return (ALL_FIELDS,)


def _without_role(columns: Columns, taken: set[str | None]) -> list[str]:
    """Return the columns that may be the text: those without a role whose name the options could give again."""
    return [name for name in columns.names if name not in taken and name.strip(" ,")]


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a column in the first rows.

    num_texts: 0 where most of them are no texts. num_phrases: texts of two words or more. words: of a text, on average.
    """

    has_any: bool
    num_texts: int = 0
    num_distinct: int = 0
    num_phrases: int = 0
    words: float = 0.0

    @classmethod
    def of(cls, values: Sequence[Any]) -> _Values:
        given = [value for value in values if value not in (None, "")]
        texts = [value for value in given if isinstance(value, str)]
        if not texts or 2 * len(texts) < len(given):
            return cls(bool(given))
        words = [_count_words(text) for text in texts]
        num_phrases = sum(count > 1 for count in words)
        return cls(True, len(texts), len(set(texts)), num_phrases, sum(words) / len(words))

    @property
    def has_phrases(self) -> bool:
        """Return whether most are texts of several words."""
        return 0 < self.num_texts <= 2 * self.num_phrases

    @property
    def are_own(self) -> bool:
        """Return whether they hardly repeat, or are so long that they are prose all the same."""
        return 2 * self.num_distinct > self.num_texts or self.words >= _LONG_WORDS

    @property
    def is_prose(self) -> bool:
        """Return whether these are sentences."""
        return self.words >= _SENTENCE_WORDS and self.are_own


def _count_words(text: str) -> int:
    """Return the number of words; two letters of a script without spaces count as one."""
    return len(text.split()) + (0 if text.isascii() else len(UNSPACED.findall(text)) // 2)


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

    @classmethod
    def of(cls, path: str, format: str, options: CorpusOptions, roles: Roles, **rest: Any) -> Source:
        """Return how a file of this format is read, whose columns have these roles; rest: the other attributes."""
        return cls(
            path=path,
            format=format,
            is_detected=options.format is None,
            id_field=roles.id,
            text_field=roles.text[0],
            more_text_fields=roles.text[1:],
            title_field=roles.title,
            **rest,
        )

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
