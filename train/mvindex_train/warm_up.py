"""Warming up on raw passages: two spans of a passage are each other's positive, all other spans of the batch negatives.

This is coCondenser's corpus-aware contrastive loss (Gao and Callan 2022, "Unsupervised corpus aware language model
pre-training for dense passage retrieval", eq. 6): for spans s_i1, s_i2 of n passages, each of the 2n spans has the
other of its passage as positive and the 2n - 2 of the other passages as negatives. Here one side of each product is
encoded as a question and the other as a document, so that both learn. Their masked-language-model loss through the
Condenser head, which eq. 7 adds, is not here: it needs a head that a retrieval encoder does not have.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from mvindex.corpus import read_documents
from mvindex.errors import ConfigError, CorpusError
from mvindex.records import Document
from mvindex_train.batches import TrainBatch
from mvindex_train.config import LossConfig
from mvindex_train.seeding import Purpose, generator

# A passage with fewer words gives no two spans that say something.
MIN_WORDS = 8
# Passages held back to be mixed: neighbours in a file are often of one article.
_MIXED_AT_ONCE = 8192
_WORD = re.compile(r"\S+")


class WarmUpBatches:
    """The batches of a corpus file, read anew in every epoch; never the whole corpus in memory.

    batch_passages: a batch; each gives two questions and two documents. The passages that are left over at the end of
    an epoch make no batch. Raises CorpusError for a file that is no corpus or makes no batch.
    """

    def __init__(self, path: str, batch_passages: int, seed: int) -> None:
        if path == "-":
            raise ConfigError("--warm-up -: wanted a file: it is read once for each epoch, which stdin cannot be")
        if batch_passages < 2:
            raise ConfigError("data.batch_passages is 1; warming up needs 2 or more, or there is no negative")
        self._path, self._size, self._seed = path, batch_passages, seed

    def num_steps(self, epoch: int) -> int:
        """Batches of an epoch, the same in each."""
        return self._num_passages // self._size

    def batches(self, epoch: int, first: int) -> Iterator[TrainBatch]:
        """The epoch's batches from the first wanted one on."""
        passages = mixed(self._passages(), generator(self._seed, Purpose.WARM_UP, epoch))
        groups = iter(lambda: list(itertools.islice(passages, self._size)), [])
        for number, group in enumerate(groups):
            if number >= first and len(group) == self._size:
                yield span_batch(group, generator(self._seed, Purpose.WARM_UP, epoch, number))

    @cached_property
    def _num_passages(self) -> int:
        count = sum(1 for _ in self._passages())
        if count < self._size:
            raise CorpusError(
                f"{self._path}: {count} passages of {MIN_WORDS} words or more; wanted {self._size}, one batch, or more"
            )
        return count

    def _passages(self) -> Iterator[Document]:
        documents = read_documents(self._path)
        return (document for document in documents if len(document.text.split()) >= MIN_WORDS)


def warm_up_loss(loss: LossConfig) -> LossConfig:
    """The loss with what needs answers, a teacher or a positive's views left out."""
    return replace(loss, local_weight=0.0, answer_view=False, distillation_weight=0.0)


def span_batch(passages: list[Document], random: np.random.Generator) -> TrainBatch:
    """The 2n spans of n passages, each as a question and as a document; of a question's own span it learns nothing."""
    spans = [span for passage in passages for span in two_spans(passage.text, random)]
    places = np.arange(len(spans))
    return TrainBatch(
        questions=spans,
        documents=[Document(f"{place}", span) for place, span in enumerate(spans)],
        positives=places ^ 1,
        excluded=np.eye(len(spans), dtype=bool),
        answer_spans=[None] * len(spans),
        teacher=None,
    )


def two_spans(text: str, random: np.random.Generator) -> tuple[str, str]:
    """Two spans of a text of MIN_WORDS words or more that share no word, in either order.

    The text is cut into two parts of a quarter of its words or more; of each, a run of half its words or more is
    taken. Spans that overlapped would teach to look for equal words.
    """
    words = [match.span() for match in _WORD.finditer(text)]
    quarter = len(words) // 4
    cut = int(random.integers(quarter, len(words) - quarter + 1))
    spans = [_run_of(text, part, random) for part in (words[:cut], words[cut:])]
    first = int(random.integers(2))
    return spans[first], spans[1 - first]


def mixed(items: Iterable[Document], random: np.random.Generator, size: int = _MIXED_AT_ONCE) -> Iterator[Document]:
    """The items in a random order, with at most so many in memory: an item comes at most `size` places early."""
    held: list[Document] = []
    for item in items:
        if len(held) < size:
            held.append(item)
            continue
        place = int(random.integers(size))
        yield held[place]
        held[place] = item
    yield from (held[place] for place in random.permutation(len(held)).tolist())


def _run_of(text: str, words: list[tuple[int, int]], random: np.random.Generator) -> str:
    length = int(random.integers(-(-len(words) // 2), len(words) + 1))
    first = int(random.integers(len(words) - length + 1))
    return text[words[first][0] : words[first + length - 1][1]]
