"""Joins vectors and texts of different files by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from mvindex.corpus import CorpusOptions, Reject, Row, open_corpus
from mvindex.errors import ConfigError, CorpusError
from mvindex.io.staging_table import VectorTable
from mvindex.io.validation import MissingPolicy, VectorDocument, VectorSource, check_first_dim
from mvindex.records import Document, ProgressCallback

_CHUNK = 1024
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Corpus files of the texts, None for documents without texts; and the policy for gaps."""

    files: Sequence[str] | None = None
    options: CorpusOptions = field(default_factory=CorpusOptions)
    missing: MissingPolicy = MissingPolicy.STOP


def join_texts(table: VectorTable, texts: Texts, on_progress: ProgressCallback) -> VectorSource:
    """Return the documents of the table's vectors, in the order of the corpus, or of the vectors without a corpus.

    All ids are compared first.

    Raises:
        CorpusError: A document has no vector or a vector no document, and the policy is not to skip and count them.

    """
    if not table.num_rows:
        raise CorpusError("the files hold no vectors")
    check_first_dim("the files", table.matrix.shape[1])
    notes: dict[str, int] = {}
    if texts.files is None:
        total = table.count_ids()
        documents = _attach_vectors(table, _make_empty(table.iterate_ids()))
    else:
        if "-" in texts.files:
            raise ConfigError("--corpus -: the corpus is read twice, which stdin cannot be; name its files")
        total, notes = _compare_ids(table, texts, on_progress)
        documents = _attach_vectors(table, _read_documents(texts))
    return VectorSource(
        dim=table.matrix.shape[1], dtype=table.matrix.dtype, documents=documents, total=total, notes=notes
    )


def _compare_ids(table: VectorTable, texts: Texts, on_progress: ProgressCallback) -> tuple[int, dict[str, int]]:
    """Return the number of documents to come, and the counts of those left out."""
    found, without = 0, 0
    shown: list[str] = []
    documents = _read_documents(texts)
    while chunk := list(islice(documents, _CHUNK)):
        ids = [document.id for _, document in chunk]
        table.mark_used(ids)
        rows = table.find_rows(ids)
        missing = [one for one in ids if one not in rows]
        shown += missing[: _SHOWN - len(shown)]
        found, without = found + len(rows), without + len(missing)
        on_progress("comparing ids", found + without, None)
    unused, names = table.find_unused()
    if texts.missing is MissingPolicy.STOP and (without or unused):
        parts = [_describe(without, "documents of the corpus have no vector", shown)] if without else []
        parts += [_describe(unused, "ids have vectors and no document in the corpus", names)] if unused else []
        raise CorpusError(f"{'; '.join(parts)}. Give all files, or skip these with --missing skip")
    if not found:
        raise CorpusError("no id of the corpus has a vector; are the vectors those of another corpus?")
    return found, {"without_vector": without, "without_text": unused}


def _describe(count: int, what: str, names: Sequence[str]) -> str:
    return f"{count:,} {what} ({', '.join(map(repr, names))}{', ...' if count > len(names) else ''})"


def _read_documents(texts: Texts) -> Iterator[tuple[str, Document]]:
    with open_corpus(list(texts.files or ()), texts.options) as corpus:
        for row in corpus:
            if isinstance(row, Reject):
                raise CorpusError(f"{row.location}: {row.reason}; correct the row")
            if isinstance(row, Row):
                yield str(row.location), row.document


def _make_empty(ids: Iterable[str]) -> Iterator[tuple[str, Document]]:
    return ((f"vector of {doc_id!r}", Document(doc_id, "")) for doc_id in ids)


def _attach_vectors(table: VectorTable, documents: Iterator[tuple[str, Document]]) -> Iterator[VectorDocument]:
    """Yield the documents that have vectors, with them."""
    while chunk := list(islice(documents, _CHUNK)):
        rows = table.find_rows([document.id for _, document in chunk])
        for location, document in chunk:
            if document.id in rows:
                yield VectorDocument(location, document, table.matrix[rows[document.id]])
