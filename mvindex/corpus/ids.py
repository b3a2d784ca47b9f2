"""Ids of documents that were given none, and of those of a folder's files."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from mvindex.records import MAX_ID_CHARS

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
