"""Roles of columns: which are the id, the text and the title of a document, named by the caller or guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mvindex.corpus.options import ALL_FIELDS, CorpusOptions
from mvindex.corpus.text.unspaced import UNSPACED
from mvindex.errors import CorpusError

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
