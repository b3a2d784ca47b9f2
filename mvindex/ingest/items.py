"""Documents, texts, dicts and tables that people add, as entries of an ingest."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

from mvindex.corpus.lines import document_of
from mvindex.corpus.rows import METADATA, VIEW_TEXTS, Columns, CorpusOptions, Roles, find_roles
from mvindex.errors import CorpusError, DocumentError
from mvindex.ingest.pipeline import Entry
from mvindex.ingest.progress import track
from mvindex.ingest.tables import is_missing, table_items
from mvindex.records import Document, plain_value, require_text, shown

# A document, its text, or a dict with a text and further fields.
Item: TypeAlias = "Document | str | Mapping[str, Any]"
# Items, or a table: of pandas or Polars, or whatever gives its rows as an Arrow stream.
Items: TypeAlias = "Iterable[Item] | Any"
_SAMPLE_ITEMS = 1000


def item_entries(items: Items, *, text_field: str | None = None, progress: bool = False) -> Iterator[Entry]:
    """Yield an entry for each item.

    A text gets an id made from its content, as does a dict or a row without one. The fields of dicts and rows are
    guessed as those of files: id, text and title, or a text of all fields. "metadata" and "view_texts" are the
    document's own; other fields are metadata, without null values.

    Args:
        items: Documents, texts and dicts, or a table of pandas, Polars or pyarrow; a single one of them too.
        text_field: The field of the text in dicts and rows, or several to join, with commas between.
        progress: Whether to show their number while they are taken: on stderr, in a notebook below the cell.

    Raises:
        DocumentError: An item is something else, or has no text; it is named by its number, from 1.

    """
    if text_field is not None and not isinstance(text_field, str):
        raise DocumentError(f"text_field: expected the name of a field, got {shown(text_field)}")
    rows = [items] if isinstance(items, Document | str | Mapping) else table_items(items)
    if not isinstance(rows, Iterable):
        raise DocumentError(f"documents: expected documents, texts, dicts or a table, got {type(items).__name__}")
    entries = _entries_of(_Items(rows), CorpusOptions(text_field=text_field))
    return track(entries, len(items) if isinstance(items, Sized) else None) if progress else entries


def _entries_of(items: _Items, options: CorpusOptions) -> Iterator[Entry]:
    roles: Roles | None = None
    for number, item in enumerate(items, start=1):
        place = f"document {number}"
        if isinstance(item, Document):
            yield Entry(place, require_text(item))
            continue
        if isinstance(item, Mapping):
            roles = roles or _find_roles(item, items, options)
            chosen = _with_own_id(roles, item)
        elif isinstance(item, str):
            item, chosen = {"text": item}, Roles(id=None)
        else:
            raise DocumentError(
                f"{place}: expected a Document, a text or a dict with a text, got {type(item).__name__}"
            )
        try:
            document = _document_of(item, chosen)
        except DocumentError as err:
            raise DocumentError(f"{place}: {err}") from err
        yield Entry(place, document, has_made_id=chosen.id is None)


class _Items:
    """An iterator over items that can show the next ones."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self._next: deque[Any] = deque()

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        return self._next.popleft() if self._next else next(self._items)

    def peek(self) -> list[Any]:
        self._next.extend(islice(self._items, _SAMPLE_ITEMS - len(self._next)))
        return list(self._next)


def _find_roles(first: Mapping[str, Any], items: _Items, options: CorpusOptions) -> Roles:
    """Return the roles of the fields of the first dict; those after it are seen where names do not decide."""

    def sample() -> list[Mapping[str, Any]]:
        return [first, *(item for item in items.peek() if isinstance(item, Mapping))]

    columns = Columns(place="documents", kind="field", names=tuple(map(str, first)), sample=sample)
    try:
        roles = find_roles(columns, options)
    except CorpusError as err:
        raise DocumentError(f"{err} (in Python: text_field=)") from err
    if roles.is_row and options.text_field is None and len(first) == 1:
        name = next(iter(columns.names))
        raise DocumentError(f"documents: expected a field of texts, got {name}; name it (in Python: text_field=)")
    # Later dicts may have a title even if the first has none.
    has_title = roles.title is not None or "title" in roles.text
    return roles if has_title else replace(roles, title="title")


def _with_own_id(roles: Roles, fields: Mapping[str, Any]) -> Roles:
    """Return the roles with the id that these fields have; None where they have none."""
    names = ("id", "_id") if roles.id is None else (roles.id,)
    found = next((name for name in names if not is_missing(fields.get(name))), None)
    return roles if roles.id == found else replace(roles, id=found)


def _document_of(fields: Mapping[str, Any], roles: Roles) -> Document:
    kept = {str(name): plain_value(value) for name, value in fields.items() if not is_missing(value)}
    if METADATA in kept:
        kept[METADATA] = _decoded(kept[METADATA])
    of_text = kept.keys() - {METADATA, VIEW_TEXTS} if roles.is_row else (*roles.text, roles.title)
    if not any(_says_something(kept.get(name)) for name in of_text if name is not None):
        raise DocumentError(f"expected a text or a title, got {', '.join(kept) or 'none'}")
    return document_of(kept, roles)


def _says_something(text: object) -> bool:
    return text is not None and not (isinstance(text, str) and not text)


def _decoded(metadata: object) -> object:
    """Return metadata that are JSON, as Index.to_arrow() writes them, decoded; anything else as it is."""
    try:
        return json.loads(metadata) if isinstance(metadata, str) else metadata
    except ValueError:
        return metadata
