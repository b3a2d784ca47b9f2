"""BM25 negatives: a memory-mapped bm25s index on disk, beside its documents."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.durable import whole_folder
from mvindex.encoder.function import join_text
from mvindex.errors import ConfigError
from mvindex.kernels.threads import default_threads
from mvindex.plugins import require
from mvindex.records import Document, Floats, Ints
from mvindex_train.negatives.candidates import Candidate

_TEXTS, _STARTS = "documents.jsonl", "documents.starts.npy"


def write_documents(documents: Iterable[Document], folder: Path) -> Iterator[Document]:
    """Yield the documents, each after it is written to the folder; complete when the iterator is exhausted."""
    starts = array("q", [0])
    with (folder / _TEXTS).open("wb") as file:
        for document in documents:
            line = json.dumps([document.id, document.text, document.title], ensure_ascii=False).encode() + b"\n"
            file.write(line)
            starts.append(starts[-1] + len(line))
            yield document
    np.save(folder / _STARTS, np.frombuffer(starts, dtype=np.int64))


class StoredDocuments:
    """The documents of write_documents() by row, without metadata; close it after use."""

    def __init__(self, folder: Path) -> None:
        self._starts = np.load(folder / _STARTS, mmap_mode="r", allow_pickle=False)
        self._handle = os.open(folder / _TEXTS, os.O_RDONLY)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: int) -> Document:
        begin, end = int(self._starts[row]), int(self._starts[row + 1])
        doc_id, text, title = json.loads(os.pread(self._handle, end - begin, begin))
        return Document(doc_id, text, title)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


SOURCE_NAME = "bm25"
# As in Pyserini's passage runs, the source of the papers' BM25 figures.
K1, B = 0.9, 0.4

_PURPOSE = "mining BM25 negatives"
_TOKENS = "tokens.i32"


def build_bm25(documents: Iterable[Document], folder: Path) -> None:
    """Write a BM25 index of title and text to a new folder, atomically.

    Documents, token ids and the index are on disk, but bm25s sorts all postings in memory: about 50 bytes for each
    distinct term of each document. Raises ConfigError when the folder exists, or when there is no document.
    """
    if folder.exists():
        raise ConfigError(f"{folder}: expected a new folder for the BM25 index, got an existing one")
    with whole_folder(folder) as unfinished:
        _build(documents, unfinished)


class Bm25Source:
    """Ranks the documents of an index of build_bm25() for questions; close it after use.

    Ties are in the order of the documents, so that results do not depend on the number of threads.
    """

    def __init__(self, folder: Path) -> None:
        bm25s = require("bm25s", "train", _PURPOSE)
        self._ranker = bm25s.BM25.load(folder, mmap=True, load_vocab=False)
        self._tokenizer = _tokenizer()
        self._tokenizer.load_vocab(folder)
        self._documents = StoredDocuments(folder)

    def close(self) -> None:
        """Close the files."""
        self._documents.close()

    def search(self, questions: Sequence[str], depth: int) -> list[list[Candidate]]:
        """Return for each question at most depth documents that share a term with it, best first."""
        tokens = self._tokenizer.streaming_tokenize(questions, update_vocab=False, allow_empty=False)
        with ThreadPoolExecutor(default_threads()) as pool:
            ranked = list(pool.map(lambda row: self._rank(row, depth), tokens))
        rows = np.unique(np.concatenate([own for own, _ in ranked])) if ranked else np.zeros(0, np.int64)
        documents = {row: self._documents[row] for row in rows.tolist()}
        return [_candidates(own, scores, documents) for own, scores in ranked]

    def _rank(self, tokens: list[int], depth: int) -> tuple[Ints, Floats]:
        """Return rows and scores of the best documents; none for a question without a known term."""
        if not tokens:
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        scores: Floats = self._ranker.get_scores_from_ids(tokens)
        rows = best_rows(scores, depth)
        return rows, scores[rows]


def best_rows(scores: Floats, depth: int) -> Ints:
    """Return the rows of the highest scores above 0, (m,) with m <= depth, best first, ties by row."""
    rows = np.flatnonzero(scores > 0)
    if len(rows) > depth:
        values = scores[rows]
        edge = np.partition(values, len(rows) - depth)[len(rows) - depth]
        above = rows[values > edge]
        rows = np.concatenate([above, rows[values == edge][: depth - len(above)]])
    return rows[np.lexsort((rows, -scores[rows]))]


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The token ids of documents on disk, read in each pass; bm25s accepts it as a tokenized corpus.

    ids: this object, a sequence of lists; vocab: stem -> id.
    """

    path: Path
    starts: Ints
    vocab: dict[str, int]

    @property
    def ids(self) -> _Tokens:
        return self

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[list[int]]:
        with self.path.open("rb") as file:
            for length in np.diff(self.starts):
                yield np.frombuffer(file.read(4 * int(length)), dtype=np.int32).tolist()


def _build(documents: Iterable[Document], folder: Path) -> None:
    bm25s = require("bm25s", "train", _PURPOSE)
    tokenizer = _tokenizer()
    tokens = _tokenize(tokenizer, write_documents(documents, folder), folder / _TOKENS)
    if not len(tokens):
        raise ConfigError("expected one document or more to mine negatives from, got none")
    ranker = bm25s.BM25(k1=K1, b=B, method="lucene")
    ranker.index(tokens, show_progress=False)
    ranker.save(folder)
    tokenizer.save_vocab(folder)
    (folder / _TOKENS).unlink()


def _tokenize(tokenizer: Any, documents: Iterable[Document], path: Path) -> _Tokens:
    texts = (join_text(document) for document in documents)
    starts = array("q", [0])
    with path.open("wb") as file:
        for ids in tokenizer.streaming_tokenize(texts, update_vocab=True):
            file.write(np.array(ids, dtype=np.int32).tobytes())
            starts.append(starts[-1] + len(ids))
    return _Tokens(path, np.frombuffer(starts, dtype=np.int64), tokenizer.get_vocab_dict())


def _tokenizer() -> Any:
    """Return a tokenizer: lower case, terms of two characters and more, English stop words removed, Snowball stems."""
    bm25s = require("bm25s", "train", _PURPOSE)
    stemmer = require("Stemmer", "train", _PURPOSE)
    return bm25s.tokenization.Tokenizer(stopwords="english", stemmer=stemmer.Stemmer("english"))


def _candidates(rows: Ints, scores: Floats, documents: dict[int, Document]) -> list[Candidate]:
    pairs = zip(rows.tolist(), scores.tolist(), strict=True)
    return [Candidate(documents[row], score, rank, SOURCE_NAME) for rank, (row, score) in enumerate(pairs, start=1)]
