"""Warm-up on raw passages: two spans of a passage are each other's positive, the other spans of the batch negatives.

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

# Shorter passages give no two meaningful spans.
MIN_WORDS = 8
# Size of the shuffle buffer: neighbours in a file are often of one article.
_SHUFFLE_BUFFER = 8192
_WORD = re.compile(r"\S+")


class WarmUpBatches:
    """The batches of a corpus file, which is streamed in every epoch.

    Each of the batch_passages passages of a batch gives two questions and two documents. An incomplete last batch is
    dropped. Raises CorpusError for a file that is not a corpus or too small for a batch.
    """

    def __init__(self, path: str, batch_passages: int, seed: int) -> None:
        if path == "-":
            raise ConfigError("--warm-up: expected a file, got stdin, which cannot be read once for each epoch")
        if batch_passages < 2:
            raise ConfigError("data.batch_passages: expected 2 or more for warm-up, got 1, which leaves no negative")
        self._path, self._size, self._seed = path, batch_passages, seed

    def num_steps(self, epoch: int) -> int:
        """Return the number of batches of an epoch, the same in each."""
        return self._num_passages // self._size

    def batches(self, epoch: int, first: int) -> Iterator[TrainBatch]:
        """Yield the epoch's batches from batch `first` on."""
        passages = shuffle(self._passages(), generator(self._seed, Purpose.WARM_UP, epoch))
        groups = iter(lambda: list(itertools.islice(passages, self._size)), [])
        for number, group in enumerate(groups):
            if number >= first and len(group) == self._size:
                yield span_batch(group, generator(self._seed, Purpose.WARM_UP, epoch, number))

    @cached_property
    def _num_passages(self) -> int:
        count = sum(1 for _ in self._passages())
        if count < self._size:
            raise CorpusError(
                f"{self._path}: expected {self._size} passages of {MIN_WORDS} words or more, one batch, got {count}"
            )
        return count

    def _passages(self) -> Iterator[Document]:
        documents = read_documents(self._path)
        return (document for document in documents if len(document.text.split()) >= MIN_WORDS)


def warm_up_loss(loss: LossConfig) -> LossConfig:
    """Return the loss without the terms that need answers, a teacher or the views of a positive."""
    return replace(loss, local_weight=0.0, answer_view=False, distillation_weight=0.0)


def span_batch(passages: list[Document], random: np.random.Generator) -> TrainBatch:
    """Make a batch of the 2n spans of n passages, each a question and a document; a question's own span is excluded."""
    spans = [span for passage in passages for span in two_spans(passage.text, random)]
    rows = np.arange(len(spans))
    return TrainBatch(
        questions=spans,
        documents=[Document(f"{row}", span) for row, span in enumerate(spans)],
        positives=rows ^ 1,
        excluded=np.eye(len(spans), dtype=bool),
        answer_spans=[None] * len(spans),
        teacher=None,
    )


def two_spans(text: str, random: np.random.Generator) -> tuple[str, str]:
    """Draw two spans without overlap from a text of MIN_WORDS words or more, in either order.

    The text is cut into two parts of a quarter of its words or more; each span is half of a part or more. Overlapping
    spans would teach the encoder to match equal words.
    """
    words = [match.span() for match in _WORD.finditer(text)]
    quarter = len(words) // 4
    cut = int(random.integers(quarter, len(words) - quarter + 1))
    spans = [_draw_span(text, part, random) for part in (words[:cut], words[cut:])]
    first = int(random.integers(2))
    return spans[first], spans[1 - first]


def shuffle(items: Iterable[Document], random: np.random.Generator, size: int = _SHUFFLE_BUFFER) -> Iterator[Document]:
    """Yield the items in random order with at most `size` in memory; none comes more than `size` places early."""
    buffer: list[Document] = []
    for item in items:
        if len(buffer) < size:
            buffer.append(item)
            continue
        place = int(random.integers(size))
        yield buffer[place]
        buffer[place] = item
    yield from (buffer[place] for place in random.permutation(len(buffer)).tolist())


def _draw_span(text: str, words: list[tuple[int, int]], random: np.random.Generator) -> str:
    length = int(random.integers(-(-len(words) // 2), len(words) + 1))
    first = int(random.integers(len(words) - length + 1))
    return text[words[first][0] : words[first + length - 1][1]]
