"""Vectors and texts that stand in different files, brought together by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from mvindex.corpus import CorpusOptions, Reject, Row, open_corpus
from mvindex.errors import ConfigError, CorpusError
from mvindex.io.staging_table import VectorTable
from mvindex.io.validation import Given, Missing, Told, VectorSource, check_first_dim
from mvindex.records import Document

_CHUNK = 1024
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Where texts come from: corpus files, None for documents of ids alone; and what is done about gaps."""

    files: Sequence[str] | None = None
    options: CorpusOptions = field(default_factory=CorpusOptions)
    missing: Missing = Missing.STOP


def joined(table: VectorTable, texts: Texts, told: Told) -> VectorSource:
    """The documents of the table's vectors, in the order of the corpus, or of the vectors where there is none.

    Before the first is given, all ids are compared: CorpusError names passages without a vector and vectors without
    a passage, unless they are to be left out; then the notes count them.
    """
    if not table.num_rows:
        raise CorpusError("the files hold no vectors")
    check_first_dim("the files", table.matrix.shape[1])
    notes: dict[str, int] = {}
    if texts.files is None:
        total = table.count_ids()
        given = _chunked(table, _bare(table.in_order()))
    else:
        if "-" in texts.files:
            raise ConfigError("--corpus -: the corpus is read twice, which stdin cannot be; name its files")
        total, notes = _compared(table, texts, told)
        given = _chunked(table, _documents(texts))
    return VectorSource(dim=table.matrix.shape[1], dtype=table.matrix.dtype, given=given, total=total, notes=notes)


def _compared(table: VectorTable, texts: Texts, told: Told) -> tuple[int, dict[str, int]]:
    """How many documents will come, and what will be left out."""
    found, without = 0, 0
    shown: list[str] = []
    documents = _documents(texts)
    while chunk := list(islice(documents, _CHUNK)):
        ids = [document.id for _, document in chunk]
        table.mark_used(ids)
        rows = table.rows_of(ids)
        missing = [one for one in ids if one not in rows]
        shown += missing[: _SHOWN - len(shown)]
        found, without = found + len(rows), without + len(missing)
        told("comparing ids", found + without, None)
    unused, names = table.unused()
    if texts.missing is Missing.STOP and (without or unused):
        parts = [_named(without, "passages of the corpus have no vector", shown)] if without else []
        parts += [_named(unused, "ids have vectors and no passage in the corpus", names)] if unused else []
        raise CorpusError(f"{'; '.join(parts)}. Give all files, or leave these out by --missing skip")
    if not found:
        raise CorpusError("no id of the corpus has a vector; are they those of another corpus?")
    return found, {"without_vector": without, "without_text": unused}


def _named(count: int, what: str, names: Sequence[str]) -> str:
    return f"{count:,} {what} ({', '.join(map(repr, names))}{', ...' if count > len(names) else ''})"


def _documents(texts: Texts) -> Iterator[tuple[str, Document]]:
    with open_corpus(list(texts.files or ()), texts.options) as corpus:
        for row in corpus:
            if isinstance(row, Reject):
                raise CorpusError(f"{row.place}: {row.reason}; mend the row")
            if isinstance(row, Row):
                yield str(row.place), row.document


def _bare(ids: Iterable[str]) -> Iterator[tuple[str, Document]]:
    return ((f"vector of {doc_id!r}", Document(doc_id, "")) for doc_id in ids)


def _chunked(table: VectorTable, documents: Iterator[tuple[str, Document]]) -> Iterator[Given]:
    """The documents that have vectors, with them."""
    while chunk := list(islice(documents, _CHUNK)):
        rows = table.rows_of([document.id for _, document in chunk])
        for place, document in chunk:
            if document.id in rows:
                yield Given(place, document, table.matrix[rows[document.id]])
