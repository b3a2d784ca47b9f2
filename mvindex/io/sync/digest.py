"""Hashes of the passages of files, computed from a folder and from an index in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import xxhash

from mvindex.records import Document, dump_metadata

_MODULUS = 1 << 128


@dataclass(slots=True)
class Digest:
    """The passages of one file: their number, and the sum of their hashes, in any order.

    whole: over id, title, text and metadata. content: over text and headings, which a moved file keeps.
    """

    passages: int = 0
    whole: int = 0
    content: int = 0

    def add(self, document: Document) -> None:
        """Add a passage."""
        whole, content = _hashes(document)
        self.passages += 1
        self.whole = (self.whole + whole) % _MODULUS
        self.content = (self.content + content) % _MODULUS

    def without(self, document: Document) -> Digest:
        """Return the digest of the other passages."""
        whole, content = _hashes(document)
        return Digest(self.passages - 1, (self.whole - whole) % _MODULUS, (self.content - content) % _MODULUS)


def add_to_digests(digests: dict[str, Digest], documents: Iterable[Document]) -> None:
    """Add documents to the digests of their files."""
    for document in documents:
        digests.setdefault(str(document.metadata.get("file")), Digest()).add(document)


def digest_of_files(digests: Mapping[str, Digest]) -> str:
    """Return one hash over the files and their passages: 32 hex digits."""
    total = xxhash.xxh3_128()
    for file in sorted(digests):
        digest = digests[file]
        total.update(f"{file}\0{digest.passages}\0{digest.whole:032x}\n".encode())
    return total.hexdigest()


def _hashes(document: Document) -> tuple[int, int]:
    """Return the two hashes of a passage."""
    metadata = dump_metadata(document.metadata, document.id)
    headings = str(document.metadata.get("headings"))
    return _hash(document.id, document.title, document.text, metadata), _hash(document.text, headings)


def _hash(*parts: str) -> int:
    digest = xxhash.xxh3_128()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.intdigest()
