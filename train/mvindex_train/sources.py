"""The files of a run -> its training examples, written to the run's folder, and its dev set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from mvindex.corpus import read_documents
from mvindex.encoder import Encoder
from mvindex.errors import ConfigError, CorpusError
from mvindex.records import Document
from mvindex_train.batches import EpochPlan, PlanConfig, TrainBatch, plan
from mvindex_train.config import DataConfig, TrainConfig
from mvindex_train.data import (
    ExampleStore,
    JoinReport,
    ReadOptions,
    ReadReport,
    Split,
    TrainingFormat,
    join_negatives,
    read_examples,
    read_training,
)
from mvindex_train.data.read import remove_title
from mvindex_train.data.store import HEADER
from mvindex_train.evaluation import DevSet, make_dev_set
from mvindex_train.negatives.config import MiningConfig
from mvindex_train.negatives.run import path_checksum

EXAMPLES = "examples"
# ANCE (Xiong et al. 2021) samples from the first 200 documents of the current encoder.
_REFRESH_DEPTH = 200
_REFRESH_NEGATIVES = 30


class StoreBatches:
    """The batches of an example store, which can be replaced by one with other negatives."""

    def __init__(self, store: ExampleStore, config: TrainConfig) -> None:
        self.store = store
        data = config.data
        self._config = PlanConfig(
            batch_passages=data.batch_passages,
            questions_per_passage=data.questions_per_passage,
            article_runs=data.article_runs,
            hard_negatives=data.hard_negatives,
        )
        self._seed = config.optimiser.seed

    def num_steps(self, epoch: int) -> int:
        """Return the number of batches of an epoch, the same in each."""
        return self._num_steps

    @cached_property
    def _num_steps(self) -> int:
        return self._plan(0).num_steps

    def batches(self, epoch: int, first: int) -> Iterator[TrainBatch]:
        """Yield the epoch's batches from batch `first` on."""
        planned = self._plan(epoch)
        return (planned.collate(planned.batch(step)) for step in range(first, planned.num_steps))

    def _plan(self, epoch: int) -> EpochPlan:
        return plan(self.store, self._config, self._seed, epoch)


def write_examples(folder: Path, data: DataConfig) -> list[str]:
    """Write the training examples and their negatives to a store in the folder; return one line for each count.

    An existing store is not written again. Raises CorpusError when a file is invalid, or when no question of the mined
    negatives is among the examples.
    """
    if (folder / EXAMPLES / HEADER).exists():
        return []
    report, joined = ReadReport(), JoinReport()
    examples = read_training(data.train, _options(data, Split.TRAIN), report)
    if not data.negatives:
        ExampleStore.write(folder / EXAMPLES, examples)
        return report.lines()
    mined = ExampleStore.write(folder / "mined", chain.from_iterable(map(read_examples, data.negatives)))
    ExampleStore.write(folder / EXAMPLES, join_negatives(examples, mined, joined))
    if not joined.joined:
        raise CorpusError(
            f"{', '.join(data.negatives)}: expected questions of the training data (id and text), got none of them. "
            "Mine negatives for the files that you train on"
        )
    return [*report.lines(), f"{joined.joined:,} examples have mined negatives, {joined.unmatched:,} have none"]


def read_dev(data: DataConfig) -> DevSet | None:
    """Return the dev questions over the passages, or over their own documents without these; None without dev files."""
    if not data.dev:
        return None
    examples = read_training(data.dev, _options(data, Split.DEV))
    return make_dev_set(examples, _passages(data) if data.passages is not None else None)


def refresh_examples(encoder: Encoder, store: ExampleStore, config: TrainConfig, folder: Path) -> ExampleStore:
    """Write the examples with negatives mined by this encoder (ANCE) to a store in the folder.

    They are sampled from the first 200 documents of the passages, or of the examples' documents without these.
    """
    from mvindex_train.negatives.miner import mine_dense

    data = config.data
    documents = _passages(data) if data.passages is not None else _documents(store)
    mining = MiningConfig(
        per_question=max(_REFRESH_NEGATIVES, data.hard_negatives),
        depth=max(_REFRESH_DEPTH, data.hard_negatives),
        sample=True,
        seed=config.optimiser.seed,
        work_folder=folder.parent,
    )
    questions = (store[row] for row in range(len(store)))
    with closing(mine_dense(encoder, documents, questions, mining)) as mined:  # type: ignore[type-var]  # a generator
        return ExampleStore.write(folder, mined)


def fingerprints(data: DataConfig, warm_up: str | None) -> dict[str, str]:
    """Return the checksum of every input by path, so that a run is never resumed with other data."""
    paths = [*data.train, *data.dev, *data.negatives, *filter(None, (data.passages, warm_up))]
    return {path: path_checksum(path) for path in paths}


def _options(data: DataConfig, split: Split) -> ReadOptions:
    known = [format.value for format in TrainingFormat]
    if data.format is not None and data.format not in known:
        raise ConfigError(f"data.format: expected one of {', '.join(known)}, got {data.format!r:.80}")
    format = None if data.format is None else TrainingFormat(data.format)
    return ReadOptions(format=format, passages=data.passages, split=split, title=data.title)


def _passages(data: DataConfig) -> Iterator[Document]:
    """Yield the documents of the corpus, without titles if data.title is off."""
    if data.passages is None:
        raise ConfigError("data.passages: expected a corpus file, got none")
    documents = read_documents(data.passages)
    return documents if data.title else map(remove_title, documents)


def _documents(store: ExampleStore) -> Iterator[Document]:
    """Yield the documents of the examples, the first of each id."""
    seen: set[str] = set()
    for row in range(len(store)):
        for document in store[row].documents:
            if document.id not in seen:
                seen.add(document.id)
                yield replace(document, metadata={})
