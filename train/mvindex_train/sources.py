"""The files of a run -> what it trains on and is measured by; all that is read lies in the run's folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import xxhash

from mvindex.corpus import read_documents
from mvindex.encoder import Encoder
from mvindex.errors import ConfigError, CorpusError
from mvindex.records import Document
from mvindex_train.batches import EpochPlan, PlanConfig, TrainBatch, plan
from mvindex_train.config import DataConfig, TrainConfig
from mvindex_train.data import (
    Example,
    ExampleStore,
    JoinReport,
    Part,
    ReadOptions,
    Report,
    TrainingFormat,
    join_negatives,
    read_examples,
    read_training,
)
from mvindex_train.data.read import without_title
from mvindex_train.data.store_files import HEADER
from mvindex_train.evaluation import DevSet, make_dev_set
from mvindex_train.negatives.config import MiningConfig

EXAMPLES = "examples"
_HASHED_AT_ONCE = 1 << 20
# ANCE (Xiong et al. 2021) draws from the first 200 documents that the current encoder finds.
_REFRESH_DEPTH = 200
_REFRESH_NEGATIVES = 30


class StoreBatches:
    """The batches of an example store, whose examples may be exchanged for others of the same questions."""

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
        """Batches of the epoch: as many in each, since each takes every passage once."""
        return self._num_steps

    @cached_property
    def _num_steps(self) -> int:
        return self._plan(0).num_steps

    def batches(self, epoch: int, first: int) -> Iterator[TrainBatch]:
        """The epoch's batches from the first wanted one on."""
        planned = self._plan(epoch)
        return (planned.collate(planned.batch(step)) for step in range(first, planned.num_steps))

    def _plan(self, epoch: int) -> EpochPlan:
        return plan(self.store, self._config, self._seed, epoch)


def write_examples(folder: Path, data: DataConfig) -> list[str]:
    """What was read, one line a count; the folder holds a store of the training examples with their negatives.

    Nothing is read when the store is there. CorpusError: a file is wrong, or no mined question is one of the examples'.
    """
    if (folder / EXAMPLES / HEADER).exists():
        return []
    report, joined = Report(), JoinReport()
    examples = read_training(data.train, _options(data, Part.TRAIN), report)
    if not data.negatives:
        ExampleStore.write(folder / EXAMPLES, examples)
        return report.lines()
    mined = ExampleStore.write(folder / "mined", _read_all(data.negatives))
    ExampleStore.write(folder / EXAMPLES, join_negatives(examples, mined, joined))
    if not joined.joined:
        raise CorpusError(
            f"{', '.join(data.negatives)}: no question is one of the training questions (id and text); "
            "mine negatives of the files that you train on"
        )
    return [*report.lines(), f"{joined.joined:,} examples got mined negatives, {joined.without:,} did not"]


def read_dev(data: DataConfig) -> DevSet | None:
    """The dev questions over the passages, or over their own documents where there are none; None without dev files."""
    if not data.dev:
        return None
    examples = read_training(data.dev, _options(data, Part.DEV))
    return make_dev_set(examples, _passages(data) if data.passages is not None else None)


def refresh_examples(encoder: Encoder, store: ExampleStore, config: TrainConfig, folder: Path) -> ExampleStore:
    """The examples with negatives that this encoder ranks high, in place of theirs, in a store in the folder.

    They are drawn from the first 200 documents of the passages, or of the examples where there are none (ANCE).
    """
    from mvindex_train.negatives.dense import mine_dense

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
    """Size and hash of every input file, by path, so that a run never goes on with other data."""
    paths = [*data.train, *data.dev, *data.negatives, *filter(None, (data.passages, warm_up))]
    if "-" in paths:
        raise ConfigError("an input is -; training reads its files more than once, which stdin cannot be: name a file")
    return {str(file): _fingerprint(file) for path in paths for file in _files(Path(path))}


def _options(data: DataConfig, part: Part) -> ReadOptions:
    known = [format.value for format in TrainingFormat]
    if data.format is not None and data.format not in known:
        raise ConfigError(f"data.format is {data.format!r:.80}; wanted one of {', '.join(known)}")
    format = None if data.format is None else TrainingFormat(data.format)
    return ReadOptions(format=format, passages=data.passages, part=part, title=data.title)


def _passages(data: DataConfig) -> Iterator[Document]:
    """The corpus, its titles left out where the data's are."""
    if data.passages is None:
        raise ConfigError("data.passages is none; wanted a corpus file")
    documents = read_documents(data.passages)
    return documents if data.title else map(without_title, documents)


def _documents(store: ExampleStore) -> Iterator[Document]:
    """The distinct documents of the examples, by id; the first one of an id."""
    seen: set[str] = set()
    for row in range(len(store)):
        for document in store[row].documents:
            if document.id not in seen:
                seen.add(document.id)
                yield replace(document, metadata={})


def _read_all(paths: Iterable[str]) -> Iterator[Example]:
    for path in paths:
        yield from read_examples(path)


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _fingerprint(path: Path) -> str:
    digest = xxhash.xxh3_128()
    size = 0
    try:
        with path.open("rb") as file:
            while block := file.read(_HASHED_AT_ONCE):
                digest.update(block)
                size += len(block)
    except OSError as err:
        raise CorpusError(f"{path}: cannot be read: {err.strerror or err}") from err
    return f"{size} bytes, xxh3 {digest.hexdigest()}"
