"""The protocol of every encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from mvindex.records import CountCallback, Document, Floats, Views

# Called with how many more documents are done; over one call the numbers add up to all documents.


class Encoder(Protocol):
    """Turns texts into vectors. Two encoders of equal fingerprint give the same vectors, up to rounding."""

    @property
    def dim(self) -> int:
        """Return the dimensions of every vector."""
        ...

    @property
    def max_views(self) -> int | None:
        """Return the most views a document gets; None where nothing bounds them."""
        ...

    @property
    def fingerprint(self) -> str:
        """Return a name of everything that changes a vector."""
        ...

    @property
    def spec(self) -> dict[str, Any]:
        """Return JSON that encoder_from_spec() opens the same encoder from; its "fingerprint" is the encoder's."""
        ...

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return the views of the documents, in order, at least one each; EncoderError names a document at fault."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32."""
        ...


@runtime_checkable
class PartialEncoder(Protocol):
    """An encoder some of whose views depend on a part of their document only, and can be kept when others change."""

    def view_keys(self, documents: Sequence[Document]) -> list[list[bytes]]:
        """Return a hash for each view of each document: views of one hash have one vector.

        A document whose views all depend on the whole of it has an empty list.
        """
        ...

    def encode_unknown(
        self, documents: Sequence[Document], known: Mapping[bytes, Floats], on_progress: CountCallback
    ) -> Views:
        """Return what encode_documents() does; vectors (dim,) known by the hash of their view are taken as they are."""
        ...


def join_text(document: Document) -> str:
    """Return title, newline, text; or the one of them that is not empty."""
    return f"{document.title}\n{document.text}" if document.title and document.text else document.title or document.text
