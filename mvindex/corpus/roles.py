"""Roles of columns: which are the id, the text and the title of a document, named by the caller or guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mvindex.corpus.options import CorpusOptions
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
# A second column of texts this long, as a share of the longest, leaves open which one is the text.
_SIMILAR_LENGTH = 0.67
# A few rows without an id, or with that of another, are bad rows in a column of ids.
_FEW_BAD = 0.9
_SHOWN_NAMES = 20
_SHOWN_CHARS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The columns or fields that make a document.

    Attributes:
        id: None where the id is made from the content.
        text: One or more; their values are joined by a blank line.
        title: None for no title.
        taken: Those, and the fields that are no metadata in any file.

    """

    id: str | None = "id"
    text: tuple[str, ...] = ("text",)
    title: str | None = "title"
    taken: frozenset[str | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "taken", frozenset((self.id, *self.text, self.title, METADATA, VIEW_TEXTS)))

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
    """Return the columns that the options name, the rest guessed by their names, the text also by its length.

    The only column beside an id is the text, also if its name is that of a title.

    Raises:
        CorpusError: A named column is missing; no column holds texts; or two hold texts of a similar length.

    """
    named = named_roles(columns, options)
    taken = set(named.taken)
    id_field, text, title = named.id, named.text, named.title
    if options.id_field is None:
        id_field = _guess_id(columns, taken)
        taken.add(id_field)
    if not text:
        text = _guess_named(columns, TEXT_NAMES, taken)
        taken.update(text)
    if options.title_field is None:
        found = _guess_named(columns, TITLE_NAMES, taken)
        taken.update(found)
        if found and not text and columns.kind == "column" and not _without_role(columns, taken):
            text = found
        else:
            title = next(iter(found), None)
    return Roles(id=id_field, text=text or (_guess_text_by_length(columns, taken),), title=title)


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
    for name in (roles.id, *roles.text, roles.title):
        if name is not None and name not in columns.names:
            raise CorpusError(
                f'{columns.place}: has no {columns.kind} "{name}" ({columns.kind}s: {list_names(columns.names)}); '
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


def _guess_named(columns: Columns, known: Sequence[str], taken: set[str | None]) -> tuple[str, ...]:
    """Return the first column of a known name, if it has the first of them or holds strings; () where there is none."""
    found = _matching(columns, known, taken)
    return tuple(name for name in found if name == known[0] or _holds_strings(columns, name))[:1]


def _holds_strings(columns: Columns, name: str) -> bool:
    values = [value for row in columns.sample() if (value := row.get(name)) is not None]
    return all(isinstance(value, str) for value in values)


def _guess_text_by_length(columns: Columns, taken: set[str | None]) -> str:
    """Return the column with the longest texts on average; "text" for JSON where later records may have it."""
    names = _without_role(columns, taken)
    if not names and columns.kind == "field":
        return "text"
    sample = columns.sample()
    lengths = {name: _text_length([row.get(name) for row in sample]) for name in names}
    longest, *others = sorted(names, key=lambda name: -lengths[name]) or [""]
    if not lengths.get(longest):
        raise CorpusError(
            f"{columns.place}: expected a {columns.kind} of texts, got {list_names(columns.names)}; "
            "name it with --text-field"
        )
    if others and lengths[others[0]] > _SIMILAR_LENGTH * lengths[longest]:
        raise CorpusError(
            f'{columns.place}: "{longest}" and "{others[0]}" hold texts of similar length; name the text with '
            f'--text-field "{longest}", or both with --text-field "{longest},{others[0]}"'
        )
    return longest


def _without_role(columns: Columns, taken: set[str | None]) -> list[str]:
    """Return the columns that may be the text: those without a role whose name the options could give again."""
    return [name for name in columns.names if name not in taken and name.strip(" ,")]


def _text_length(values: Sequence[Any]) -> float:
    """Return the mean length of the values; 0 where fewer than half are texts of several words or another script."""
    texts = [value for value in values if isinstance(value, str) and value]
    num_sentences = sum(not text.isascii() or len(text.split(None, 1)) > 1 for text in texts)
    return sum(map(len, texts)) / len(values) if 2 * num_sentences >= max(1, len(texts)) else 0.0
