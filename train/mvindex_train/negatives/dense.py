"""Dense negatives: documents that the current encoder ranks high for a question."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mvindex.encoder import Encoder
from mvindex.index import Index
from mvindex.index.factory import create
from mvindex.records import Document
from mvindex_train.data.records import Example
from mvindex_train.negatives.candidates import Candidate
from mvindex_train.negatives.config import MiningConfig
from mvindex_train.negatives.miner import Miner

SOURCE_NAME = "dense"


class DenseSource:
    """Ranks the documents of an index by their best view.

    exact: certified rankings, with any engine of the index.
    """

    def __init__(self, index: Index, exact: bool = False) -> None:
        self._index, self._exact = index, exact

    def search(self, questions: Sequence[str], depth: int) -> list[list[Candidate]]:
        """Return for each question the depth documents of highest score, best first."""
        results = self._index.search(list(questions), top_k=depth, exact=self._exact, mode="dense")
        return [
            [
                Candidate(Document(hit.id, hit.text, hit.title), hit.score, rank, SOURCE_NAME)
                for rank, hit in enumerate(result.hits, start=1)
            ]
            for result in results
        ]


def mine_dense(
    encoder: Encoder, documents: Iterable[Document], questions: Iterable[Example], config: MiningConfig
) -> Iterator[Example]:
    """Yield the questions with negatives mined by this encoder, to refresh a training run (ANCE; DRPQ section 3.3).

    The documents are encoded into an index inside config.work_folder, which is deleted when the iterator ends or is
    closed; the encoder must not change before that.
    """
    with _temporary_index(encoder, config.work_folder) as index:
        index.add(documents)
        yield from Miner([DenseSource(index, config.exact)], config).mine(questions)


@contextmanager
def _temporary_index(encoder: Encoder, parent: Path | None) -> Iterator[Index]:
    folder = Path(tempfile.mkdtemp(prefix="mining-", dir=parent))
    try:
        with create(folder / "documents.mvx", encoder=encoder) as index:
            yield index
    finally:
        shutil.rmtree(folder)
