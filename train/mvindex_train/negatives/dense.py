"""Dense negatives: what an index of views ranks high for a question, the current encoder's own mistakes."""

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
from mvindex_train.negatives.mining import Miner

SOURCE_NAME = "dense"


class DenseSource:
    """The documents of an index, ranked by their best view: any view that fits makes a document a candidate.

    exact: certified rankings, whatever engine the index has.
    """

    def __init__(self, index: Index, exact: bool = False) -> None:
        self._index, self._exact = index, exact

    def search(self, questions: Sequence[str], depth: int) -> list[list[Candidate]]:
        """For each question the depth documents of highest score, best first."""
        results = self._index.search(list(questions), top_k=depth, exact=self._exact)
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
    """The questions with fresh negatives by this encoder, for the refresh of a training run (ANCE; DRPQ section 3.3).

    The documents are encoded into an index inside config.work_folder, which is gone when the iterator ends or is
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
