"""A Faiss index file, opened as it is, with the document of each of its vectors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mvindex.corpus.paths import expand_local_paths
from mvindex.encoder import EncoderLike
from mvindex.engines.auto import nprobe_for_hits
from mvindex.errors import ConfigError, CorpusError, Unsupported
from mvindex.index import Index
from mvindex.io.array_rows import read_id_map, read_ids
from mvindex.paths import expand_home
from mvindex.plugins import require_faiss
from mvindex.records import Floats, Ints
from mvindex_connectors.adopted.source import AdoptedDocument, Metric, RankedRows
from mvindex_connectors.adopted.store import adopted_index
from mvindex_connectors.engines.faiss_files import translated

_VECTORS_AT_ONCE = 65_536
_UNIT = float(np.finfo(np.float32).eps)


def adopt_faiss(  # noqa: PLR0913 - what only who made the file knows
    path: str | os.PathLike[str],
    ids: str | os.PathLike[str] | Sequence[object] | None = None,
    *,
    encoder: EncoderLike | None = None,
    temperature: float = 1.0,
    nprobe: int | None = None,
    ef_search: int | None = None,
) -> Index:
    """Open a Faiss index as it is, read-only, its vectors mapped from the file where Faiss can.

    Results are distinct documents by their best vector, or by DRPQ over all of theirs. Exact only for flat indexes.
    Faiss trusts what a file says: open only files that you trust, and do not change one that is open.

    Args:
        path: What faiss.write_index wrote, of metric inner product or L2 (the score is then the negative squared
            distance).
        ids: The document id of each number that Faiss returns, in order: a sequence, or a file of them (.npy, a .json
            list or object by numbers, .jsonl of strings or of objects with "row" and "id", .tsv of row and id, else a
            line each). By default each vector is a document named by its number.
        encoder: The encoder of the vectors, for queries that are texts; see load_encoder().
        temperature: T of DRPQ scoring.
        nprobe: For IVF: lists that are searched, or more for many documents; as in the file by default.
        ef_search: For HNSW: size of the candidate list, at least the rows asked for; as in the file by default.

    Raises:
        CorpusError: For a file that Faiss cannot read, and ids that do not fit its vectors.
        Unsupported: For another metric, or an index that does not return its vectors.

    """
    faiss = require_faiss()
    name = expand_home(path)
    index = _read(faiss, name)
    return adopted_index(_FaissSource(faiss, name, index, ids, nprobe, ef_search), encoder, temperature)


def _read(faiss: ModuleType, path: str) -> Any:
    if not Path(path).is_file():
        raise CorpusError(f"{path}: expected a file that faiss.write_index wrote, got none")
    try:
        return faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as err:
        raise CorpusError(f"{path}: Faiss cannot read it: {str(err).rpartition('Error: ')[2]:.200}") from err


class _FaissSource:
    """The rows of a Faiss index; a row is a position in it, a number what Faiss returns for it."""

    max_limit = (1 << 31) - 1
    copied_by = "`mvindex import faiss`"

    def __init__(  # noqa: PLR0913 - those of adopt_faiss()
        self,
        faiss: ModuleType,
        where: str,
        whole: Any,
        ids: Any,
        nprobe: int | None,
        ef_search: int | None,
    ) -> None:
        self._faiss, self.where, self._whole = faiss, where, whole
        metrics = {faiss.METRIC_INNER_PRODUCT: Metric.INNER_PRODUCT, faiss.METRIC_L2: Metric.SQUARED_DISTANCE}
        if whole.metric_type not in metrics:
            raise Unsupported(
                f"{where}: expected the metric inner product or L2, got Faiss' number {whole.metric_type}"
            )
        self.metric = metrics[whole.metric_type]
        is_mapped = isinstance(whole, faiss.IndexIDMap)
        self._inner = faiss.downcast_index(whole.index) if is_mapped else whole
        self._numbers: Ints = (
            faiss.vector_to_array(whole.id_map).copy() if is_mapped else np.arange(whole.ntotal, dtype=np.int64)
        )
        self._by_number = np.argsort(self._numbers, kind="stable")
        self.kind, self.dim, self.num_rows = type(self._inner).__name__, int(whole.d), int(whole.ntotal)
        self.is_exact = isinstance(self._inner, faiss.IndexFlat)
        self._prepare(nprobe, ef_search)
        self._place(_names(ids, self._numbers, where))

    def _prepare(self, nprobe: int | None, ef_search: int | None) -> None:
        faiss, self._ef_search, self._nprobe = self._faiss, ef_search, 0
        if isinstance(self._inner, faiss.IndexIVF):
            translated(self._inner.make_direct_map)
            self._nprobe = int(self._inner.nprobe) if nprobe is None else nprobe
            if not 1 <= self._nprobe <= self._inner.nlist:
                raise ConfigError(f"{self.where}: nprobe: expected 1 to {self._inner.nlist}, got {nprobe!r:.60}")
        elif nprobe is not None:
            raise ConfigError(f"{self.where}: nprobe= belongs to an IVF index, got {self.kind}")
        if ef_search is not None and not isinstance(self._inner, faiss.IndexHNSW):
            raise ConfigError(f"{self.where}: ef_search= belongs to an HNSW index, got {self.kind}")
        try:
            if self.num_rows:
                self._inner.reconstruct(0)
        except RuntimeError as err:
            raise Unsupported(f"{self.where}: a {self.kind} does not return its vectors, which scores need") from err

    def _place(self, names: Sequence[str]) -> None:
        """Keep which documents there are, numbered by their first rows, and the rows of each."""
        self._documents: dict[str, int] = {}
        of_row = np.empty(self.num_rows, dtype=np.int64)
        for row, name in enumerate(names):
            of_row[row] = self._documents.setdefault(name, len(self._documents))
        self._ids, self._of_row = list(self._documents), of_row
        self._rows = np.argsort(of_row, kind="stable")
        self._starts = np.searchsorted(of_row[self._rows], np.arange(len(self._ids) + 1))

    def close(self) -> None:
        """Forget the index; Faiss unmaps its file."""
        self._whole = self._inner = None

    @cached_property
    def _max_norm(self) -> float:
        highest = 0.0
        for begin in range(0, self.num_rows, _VECTORS_AT_ONCE):
            block = self._inner.reconstruct_n(begin, min(_VECTORS_AT_ONCE, self.num_rows - begin))
            highest = max(highest, float(np.linalg.norm(block.astype(np.float64), axis=1).max()))
        return highest

    def error(self, query: Floats) -> float:
        """Return the most by which a score is off: fp32 sums of d products, in any order (Higham 2002, section 3.1)."""
        size = float(np.linalg.norm(query.astype(np.float64)))
        # Of a distance, also the squares of both are rounded.
        scale = size * self._max_norm if self.metric is Metric.INNER_PRODUCT else (size + self._max_norm) ** 2
        return 2 * (self.dim + 4) * _UNIT * scale

    def rank(self, query: Floats, limit: int) -> RankedRows:
        """Return the best rows of a query; an IVF index searches more lists where they have too few rows."""
        nprobe = self._nprobe
        if nprobe:
            nprobe = nprobe_for_hits({"nprobe": nprobe}, int(self._inner.nlist), self.num_rows, limit)
        while True:
            parameters = self._parameters(limit, nprobe)
            distances, numbers = translated(self._whole.search, query[None], limit, params=parameters)
            found = numbers[0] >= 0
            if found.all() or not nprobe or nprobe >= self._inner.nlist:
                break
            nprobe = min(2 * nprobe, int(self._inner.nlist))
        rows = self._by_number[np.searchsorted(self._numbers[self._by_number], numbers[0][found])]
        scores = distances[0][found] if self.metric is Metric.INNER_PRODUCT else -distances[0][found]
        documents = [self._ids[number] for number in self._of_row[rows].tolist()]
        return RankedRows(documents, scores, len(rows) >= self.num_rows)

    def _parameters(self, limit: int, nprobe: int) -> Any:
        if nprobe:
            return self._faiss.SearchParametersIVF(nprobe=nprobe)
        if not isinstance(self._inner, self._faiss.IndexHNSW):
            return None
        return self._faiss.SearchParametersHNSW(efSearch=max(limit, self._ef_search or int(self._inner.hnsw.efSearch)))

    def count_rows(self) -> int:
        """Return the number of vectors, which does not change."""
        return self.num_rows

    def scan(self) -> Iterator[tuple[list[str], Floats]]:
        """Yield all vectors, a block at a time, with the document of each."""
        for begin in range(0, self.num_rows, _VECTORS_AT_ONCE):
            block: Floats = self._inner.reconstruct_n(begin, min(_VECTORS_AT_ONCE, self.num_rows - begin))
            yield [self._ids[number] for number in self._of_row[begin : begin + len(block)].tolist()], block

    def read(self, ids: Sequence[str], *, with_text: bool) -> Mapping[str, AdoptedDocument]:
        """Return the documents that exist, each with all its views; there are no texts."""
        found = {}
        for doc_id in ids:
            number = self._documents.get(doc_id)
            if number is not None:
                rows = self._rows[self._starts[number] : self._starts[number + 1]]
                views = np.stack([self._inner.reconstruct(int(row)) for row in rows])
                found[doc_id] = AdoptedDocument(doc_id, (), views, number)
        return found

    def ids(self) -> Iterator[str]:
        """Yield the id of each document once, in the order of their first rows."""
        return iter(self._ids)


def _names(ids: Any, numbers: Ints, where: str) -> list[str]:
    """Return the document id of each row; CorpusError where one is missing."""
    if ids is None:
        return list(map(str, numbers.tolist()))
    source = expand_home(ids) if isinstance(ids, str | os.PathLike) else "ids"
    known: Mapping[int, str] | None = None
    if not isinstance(ids, str | os.PathLike):
        names = [str(one) for one in ids]
    else:
        source = expand_local_paths([source])[0]
        known = _pairs(source) if source.endswith((".jsonl", ".tsv")) else read_id_map(source)
        names = list(read_ids(source)) if known is None else []
    if known is None:
        known = dict(enumerate(names))
        if len(names) != len(numbers) and np.array_equal(numbers, np.arange(len(numbers))):
            raise CorpusError(
                f"{source}: expected {len(numbers):,} ids, one for each vector of {where}, got {len(names):,}"
            )
    missing = next((number for number in numbers.tolist() if number not in known), None)
    if missing is not None:
        raise CorpusError(f"{source}: {len(known):,} ids, and none for vector {missing} of {where}")
    return [known[number] for number in numbers.tolist()]


def _pairs(path: str) -> dict[int, str]:
    """Return the ids of a .jsonl or .tsv file by row; CorpusError names the line that is neither."""
    found: dict[int, str] = {}
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file):
                row, doc_id = (
                    _pair(line.rstrip("\n"), number) if path.endswith(".jsonl") else line.rstrip("\n").split("\t")
                )
                if not isinstance(doc_id, str) or not doc_id or int(row) in found:
                    raise ValueError("expected an id, and each row once")
                found[int(row)] = doc_id
    except OSError as err:
        raise CorpusError(f"{path}: cannot be read: {err.strerror or err}") from err
    except (ValueError, TypeError, KeyError) as err:
        raise CorpusError(f"{path}:{len(found) + 1}: expected a row and the id of its document: {err}") from err
    return found


def _pair(line: str, number: int) -> tuple[Any, Any]:
    value = json.loads(line)
    return (value["row"], value["id"]) if isinstance(value, dict) else (number, value)
