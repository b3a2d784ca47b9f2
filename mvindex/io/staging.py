"""Documents and vectors on their way in: checked, staged in a table, and joined with their texts."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.corpus import CorpusOptions, Reject, Row, open_corpus
from mvindex.errors import ConfigError, CorpusError, DocumentError, StoreError
from mvindex.ingest import CHUNK_DOCUMENTS, Entry, IngestReport, SeenIds, refuse_duplicate
from mvindex.records import Document, ProgressCallback, Views, batched
from mvindex.store.files import temporary_database, temporary_errors
from mvindex.store.rows import Batch, content_hash, pack_views
from mvindex.store.snapshot import MAX_DIM
from mvindex.store.views import ViewType

Array = npt.NDArray[Any]


class MissingPolicy(Enum):
    """Policy for a document of the corpus without a vector, and a vector without a document."""

    STOP = "stop"
    SKIP = "skip"


class VectorDocument(NamedTuple):
    """A document with its location, its views (k, d), their spans (k, 2) with -1 for none, and its ordinal, if any."""

    source_location: str
    document: Document
    rows: Array
    spans: Array | None = None
    ordinal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of columns or fields; None for the default names, where the file has them."""

    id: str | None = None
    vector: str | None = None
    text: str | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        named = [name for name in (self.id, self.vector, self.text, self.title) if name is not None]
        if "" in named or len(set(named)) < len(named):
            raise ConfigError(f"the columns {', '.join(map(repr, named))} must have different names that are not empty")


@dataclass(slots=True, kw_only=True)
class VectorSource:
    """Documents with their views, to be read once.

    dtype: of the numbers in the files. total: number of documents, where known. notes: counts of what was left out.
    """

    dim: int
    dtype: np.dtype[Any]
    documents: Iterator[VectorDocument]
    total: int | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


ID_NAMES = ("doc_id", "id", "_id", "document_id")
VECTOR_NAMES = ("vector", "vectors", "embedding", "embeddings")


def choose_column(path: str, columns: Sequence[str], named: str | None, defaults: Sequence[str], option: str) -> str:
    """Return the named column, else the default one; raise CorpusError where none or several match."""
    found = [name for name in (defaults if named is None else (named,)) if name in columns]
    if len(found) == 1:
        return found[0]
    has = f"the columns here are {', '.join(columns) or 'none'}"
    if not found:
        raise CorpusError(f"{path}: no column {named or ' or '.join(defaults)!r}; {has}; choose one by {option}")
    raise CorpusError(f"{path}: columns {' and '.join(found)} both match; choose one by {option}")


def check_id(location: str, doc_id: str) -> str:
    """Return the id; raise CorpusError, with its location, when no document may have it."""
    try:
        Document(doc_id, "")
    except DocumentError as err:
        raise CorpusError(f"{location}: {err}") from err
    return doc_id


def check_dim(location: str, dim: int, expected: int) -> None:
    """Raise CorpusError when vectors have another number of dims than those before."""
    if dim != expected:
        raise CorpusError(f"{location}: expected vectors of {expected} dims, as before, got {dim}")


def check_first_dim(location: str, dim: int) -> None:
    """Raise CorpusError when no index stores vectors of so many dims."""
    if not 1 <= dim <= MAX_DIM:
        raise CorpusError(f"{location}: expected vectors of 1 to {MAX_DIM} dims, got {dim}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSchema:
    """How the new index stores views. is_encoded: it has an encoder, and compares documents by their texts only."""

    dim: int
    view_type: ViewType
    is_encoded: bool


def make_batches(documents: Iterable[VectorDocument], schema: TargetSchema) -> Iterator[Batch]:
    """Yield the documents in batches for a store; raise CorpusError at the first bad one or repeated id."""
    with SeenIds() as seen:
        for batch in batched(documents, CHUNK_DOCUMENTS):
            seen.drop_repeats(
                [Entry(one.source_location, one.document) for one in batch], refuse_duplicate, IngestReport()
            )
            yield _make_batch(batch, schema)


def _make_batch(documents: Sequence[VectorDocument], schema: TargetSchema) -> Batch:
    for one in documents:
        check_dim(one.source_location, one.rows.shape[1], schema.dim)
    counts = [len(one.rows) for one in documents]
    with np.errstate(over="ignore"):  # what overflows is found, and named, when it is packed
        rows = np.concatenate([one.rows for one in documents]).astype(np.float32)
    spans = np.concatenate([_check_spans(one) for one in documents])
    starts = np.append(0, np.cumsum(counts))
    ordinals = [one.ordinal for one in documents if one.ordinal is not None]
    if ordinals and len(ordinals) < len(documents):
        raise CorpusError(
            f"{documents[0].source_location}: some documents from here on have an ordinal, and some have none"
        )
    views = [None if schema.is_encoded else rows[begin:end] for begin, end in zip(starts[:-1], starts[1:], strict=True)]
    try:
        # Before it is stored, so that bad input is distinguished from a full disk.
        packed = pack_views(Views(rows, starts, spans), schema.view_type, [one.document.id for one in documents])
    except StoreError as err:
        raise CorpusError(f"{documents[0].source_location} and below: {err}") from err
    return Batch(
        documents=[one.document for one in documents],
        views=packed,
        content_hashes=[
            content_hash(one.document, own, None if own is None else one.spans)
            for one, own in zip(documents, views, strict=True)
        ],
        ordinals=np.array(ordinals, dtype=np.int64) if ordinals else None,
    )


def _check_spans(one: VectorDocument) -> Array:
    """Return the spans of a document's views, -1 where there are none; raise CorpusError for one outside the text."""
    if one.spans is None:
        return np.full((len(one.rows), 2), -1, dtype=np.int64)
    begins, ends = one.spans[:, 0], one.spans[:, 1]
    is_none = (begins == -1) & (ends == -1)
    is_bad = ~is_none & ~((begins >= 0) & (begins <= ends) & (ends <= len(one.document.text)))
    if is_bad.any():
        slot = int(np.argmax(is_bad))
        raise CorpusError(
            f"{one.source_location}: document {one.document.id!r}: view {slot} stands for characters {begins[slot]} to "
            f"{ends[slot]}; its text has {len(one.document.text)}"
        )
    return one.spans


_SHOWN = 3


class VectorTable:
    """Vectors (r, d) by row, and the rows of each id, in order; add_ids() adds the ids of the rows in order."""

    def __init__(self) -> None:
        self.matrix: Array = np.empty((0, 0), dtype=np.float32)
        self.num_rows = 0
        self._connection = temporary_database()
        self._connection.execute(
            "CREATE TABLE vectors(id TEXT NOT NULL, row INTEGER NOT NULL, PRIMARY KEY(id, row)) WITHOUT ROWID"
        )
        self._connection.execute("CREATE TABLE used(id TEXT PRIMARY KEY) WITHOUT ROWID")

    def __enter__(self) -> VectorTable:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def add_ids(self, ids: Sequence[str]) -> None:
        """Record that the next rows are vectors of these ids."""
        rows = [(doc_id, self.num_rows + number) for number, doc_id in enumerate(ids)]
        self._insert("INSERT INTO vectors VALUES (?, ?)", rows)
        self.num_rows += len(ids)

    def count_ids(self) -> int:
        """Return the number of different ids."""
        return int(self._rows("SELECT count(DISTINCT id) FROM vectors")[0][0])

    def find_repeated(self) -> tuple[str, list[int]] | None:
        """Return an id of several vectors, with their rows; None where there is no such id."""
        found = self._rows("SELECT id FROM vectors GROUP BY id HAVING count(*) > 1 LIMIT 1")
        return (found[0][0], self.find_rows([found[0][0]])[found[0][0]]) if found else None

    def find_rows(self, ids: Sequence[str]) -> dict[str, list[int]]:
        """Return the rows of the ids that have vectors."""
        query = (
            "SELECT vectors.id, vectors.row FROM json_each(?) AS given CROSS JOIN vectors "
            "ON vectors.id = given.value ORDER BY vectors.row"
        )
        rows: dict[str, list[int]] = {}
        for doc_id, row in self._rows(query, (json.dumps(list(ids), ensure_ascii=False),)):
            rows.setdefault(doc_id, []).append(row)
        return rows

    def mark_used(self, ids: Sequence[str]) -> None:
        """Record that the corpus has these ids; raise CorpusError for one that it had before."""
        found = self._rows(
            "SELECT used.id FROM json_each(?) AS given JOIN used ON used.id = given.value LIMIT 1",
            (json.dumps(list(ids), ensure_ascii=False),),
        )
        again = [one for one, count in Counter(ids).items() if count > 1]
        twice = found[0][0] if found else (again[0] if again else None)
        if twice is not None:
            raise CorpusError(f"the corpus has two documents with the id {twice!r}; an id may occur once")
        self._insert("INSERT INTO used VALUES (?)", [(one,) for one in ids])

    def find_unused(self) -> tuple[int, list[str]]:
        """Return how many ids have vectors and no document, and some of them."""
        missing = "FROM (SELECT DISTINCT id FROM vectors) AS had WHERE had.id NOT IN (SELECT id FROM used)"
        count = int(self._rows(f"SELECT count(*) {missing}")[0][0])  # noqa: S608 - no value is in it
        names = self._rows(f"SELECT had.id {missing} LIMIT {_SHOWN}") if count else []  # noqa: S608
        return count, [name for (name,) in names]

    def iterate_ids(self) -> Iterator[str]:
        """Yield the ids in the order of their first vectors."""
        with temporary_errors():
            # Not closed by itself: where it is not read to its end, the connection is closed before it.
            for (doc_id,) in self._connection.execute("SELECT id FROM vectors GROUP BY id ORDER BY min(row)"):
                yield doc_id

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with temporary_errors(), closing(self._connection.execute(query, values)) as cursor:
            return cursor.fetchall()

    def _insert(self, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        with temporary_errors():
            self._connection.execute("BEGIN")
            self._connection.executemany(query, rows)
            self._connection.execute("COMMIT")


class Spool:
    """Vectors of one dim and type, written in order into a temporary file, and then read by row."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._dim: int | None = None
        self._dtype: np.dtype[Any] = np.dtype("<f4")
        self._num_rows = 0
        try:
            self._file = tempfile.TemporaryFile(dir=folder)
        except OSError as err:
            raise StoreError(
                f"{folder}: no temporary file for vectors can be created there: {err.strerror or err}"
            ) from err

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Where the disk is full, what is left to be written is of no use either.
        with suppress(OSError):
            self._file.close()

    def add(self, location: str, vectors: Array) -> None:
        """Write the vectors (m, d); raise CorpusError when those before had another dim or type."""
        if self._dim is None:
            self._dim, self._dtype = vectors.shape[1], vectors.dtype
        check_dim(location, vectors.shape[1], self._dim)
        if vectors.dtype != self._dtype:
            raise CorpusError(f"{location}: expected vectors of {self._dtype}, as before, got {vectors.dtype}")
        try:
            self._file.write(np.ascontiguousarray(vectors).data)
        except OSError as err:
            raise StoreError(
                f"{self._folder}: the temporary copy of the vectors does not fit there: {err.strerror or err}"
            ) from err
        self._num_rows += len(vectors)

    def matrix(self) -> Array:
        """Return all vectors (r, d), memory-mapped."""
        if not self._num_rows:
            return np.empty((0, 1), dtype=np.float32)
        try:
            self._file.flush()
        except OSError as err:
            raise StoreError(f"{self._folder}: the vectors do not fit there: {err.strerror or err}") from err
        return np.memmap(self._file, dtype=self._dtype, mode="r", shape=(self._num_rows, self._dim or 1))


_CHUNK = 1024
_SHOWN_IDS = 3


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
    for chunk in batched(_read_documents(texts), _CHUNK):
        ids = [document.id for _, document in chunk]
        table.mark_used(ids)
        rows = table.find_rows(ids)
        missing = [one for one in ids if one not in rows]
        shown += missing[: _SHOWN_IDS - len(shown)]
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
    for chunk in batched(documents, _CHUNK):
        rows = table.find_rows([document.id for _, document in chunk])
        for location, document in chunk:
            if document.id in rows:
                yield VectorDocument(location, document, table.matrix[rows[document.id]])
