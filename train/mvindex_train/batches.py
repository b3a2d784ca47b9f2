"""The plan of an epoch over an example store, and its batches: stateless, with random access by step.

An epoch uses every passage once, with up to questions_per_passage of its questions. Further questions follow in the
next epochs in rotation: over as many epochs as a passage has questions, each is used questions_per_passage times. The
same store, settings, seed and epoch give the same batches, so that an interrupted epoch can be resumed at any step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mvindex.encoder.arranged import Arranged
from mvindex.errors import ConfigError
from mvindex.records import Bools, Document, Floats, Ints, Span
from mvindex_train.data.records import Example, content_key, unique_documents
from mvindex_train.data.store import ExampleStore

Content = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfig:
    """How batches are cut.

    batch_passages: distinct passages a batch. questions_per_passage: maximum number of questions of each.
    article_runs: a batch has consecutive passages of articles, hence near negatives of each other. hard_negatives:
    maximum number of a question's negatives, drawn again in every epoch. smallest_batch: a last batch of fewer
    passages is merged into the previous one; use 2 for each process where a batch is divided. Raises ConfigError.
    """

    batch_passages: int = 32
    questions_per_passage: int = 1
    article_runs: bool = False
    hard_negatives: int = 0
    smallest_batch: int = 2

    def __post_init__(self) -> None:
        minimums = {"batch_passages": 1, "questions_per_passage": 1, "hard_negatives": 0, "smallest_batch": 1}
        for name, minimum in minimums.items():
            if getattr(self, name) < minimum:
                raise ConfigError(f"{name}: expected {minimum} or more, got {getattr(self, name)}")
        if self.batch_passages == 1 and self.hard_negatives == 0:
            raise ConfigError(
                "batch_passages: expected 2 or more without hard negatives, got 1, which leaves a question no negative"
            )


@dataclass(frozen=True, slots=True, eq=False)
class TrainBatch:
    """q questions and the n distinct documents that they are scored against.

    documents: positives, then hard negatives, unique by title and text. positives: (q,) column of each question's
    positive. excluded: (q, n) True where a document is another positive of the question, and thus no negative.
    answer_spans: of the positive's text. teacher: (q, n), NaN where unknown; None where all are unknown. arranged: the
    windows of the documents that this process encodes, where they were arranged ahead.
    """

    questions: list[str]
    documents: list[Document]
    positives: Ints
    excluded: Bools
    answer_spans: list[Span | None]
    teacher: Floats | None
    arranged: Arranged | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EpochPlan:
    """The batches of one epoch over a store.

    passages: (p,) numbers of the store's passages; batch i holds passages[cuts[i]:cuts[i + 1]]. order: (b,) the batch
    of each step. num_merged: passages of a last batch that was too small, merged into the previous one.
    """

    store: ExampleStore
    config: PlanConfig
    seed: int
    epoch: int
    passages: Ints
    cuts: Ints
    order: Ints
    num_merged: int

    @property
    def num_steps(self) -> int:
        """The number of batches of the epoch."""
        return len(self.order)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Ints:
        """Return the store's rows of the batch of a step: all of them, or the part of process `rank` of `world`.

        The parts are a partition of the batch by passages. Raises IndexError when the epoch has no such step,
        ConfigError at any step when some batch of the epoch has fewer passages than there are processes.
        """
        if not 0 <= step < self.num_steps:
            raise IndexError(f"step {step} of {self.num_steps}")
        fewest = int(np.diff(self.cuts).min())
        if not 0 <= rank < world or fewest < world:
            raise ConfigError(
                f"expected a rank below the number of processes and a passage for each, got rank {rank} of {world} "
                f"processes and {fewest} passages in the smallest batch. Raise batch_passages and smallest_batch"
            )
        number = self.order[step]
        passages = self.passages[self.cuts[number] : self.cuts[number + 1]]
        return self._rows_of(np.array_split(passages, world)[rank])

    def collate(self, rows: Ints) -> TrainBatch:
        """Return the batch of these rows of the store."""
        examples = [self.store[int(row)] for row in rows]
        known = _known_positives(examples)
        columns = _Columns()
        positives = np.array([columns.add(example.positives[0]) for example in examples], np.int64)
        for row, example in zip(rows, examples, strict=True):
            for negative in self._draw_negatives(int(row), example, known[example.question]):
                columns.add(negative)
        return TrainBatch(
            questions=[example.question for example in examples],
            documents=columns.documents,
            positives=positives,
            excluded=_find_excluded(examples, known, positives, columns),
            answer_spans=[example.answer_span for example in examples],
            teacher=_teacher(examples, columns),
        )

    def _rows_of(self, passages: Ints) -> Ints:
        """Return the rows of this epoch's questions of the passages, passage by passage."""
        groups, limit = self.store.groups, self.config.questions_per_passage
        counts = groups.starts[passages + 1] - groups.starts[passages]
        taken = np.minimum(counts, limit)
        within = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
        offset = (np.repeat(self.epoch * limit % counts, taken) + within) % np.repeat(counts, taken)
        rows: Ints = groups.rows[np.repeat(groups.starts[passages], taken) + offset]
        return rows

    def _draw_negatives(self, row: int, example: Example, known: set[Content]) -> list[Document]:
        candidates = [
            document for content, document in unique_documents(example.negatives).items() if content not in known
        ]
        if len(candidates) <= self.config.hard_negatives:
            return candidates
        drawn = np.random.default_rng([self.seed, self.epoch, row]).permutation(len(candidates))
        return [candidates[place] for place in drawn[: self.config.hard_negatives]]


@dataclass(slots=True)
class _Columns:
    """The distinct documents of a batch in order of insertion, and the column of each content."""

    documents: list[Document] = field(default_factory=list)
    column_of: dict[Content, int] = field(default_factory=dict)

    def add(self, document: Document) -> int:
        """Return the document's column, a new one unless its title and text are present."""
        column = self.column_of.setdefault(content_key(document), len(self.documents))
        if column == len(self.documents):
            self.documents.append(document)
        return column


def plan(store: ExampleStore, config: PlanConfig, seed: int, epoch: int) -> EpochPlan:
    """Return the plan of an epoch; raise ConfigError when the store has too few passages for a batch."""
    num_passages = store.groups.num_passages
    # With hard negatives a batch of one passage is allowed.
    least = min(config.smallest_batch, config.batch_passages)
    if num_passages < least:
        raise ConfigError(f"{store.folder}: expected {least} passages or more for one batch, got {num_passages}")
    random = np.random.default_rng([seed, epoch])
    passages = _order_passages(store, config, random)
    cuts, num_merged = _cut(num_passages, config.batch_passages, least)
    order = random.permutation(len(cuts) - 1) if config.article_runs else np.arange(len(cuts) - 1)
    return EpochPlan(store, config, seed, epoch, passages, cuts, order, num_merged)


def _order_passages(store: ExampleStore, config: PlanConfig, random: np.random.Generator) -> Ints:
    """Return all passages in random order, or with article_runs the articles in random order."""
    groups = store.groups
    if not config.article_runs:
        return random.permutation(groups.num_passages)
    turns = random.permutation(int(groups.articles.max()) + 1)
    return np.argsort(turns[groups.articles], kind="stable")


def _cut(num_passages: int, batch_passages: int, least: int) -> tuple[Ints, int]:
    """Return the boundaries of the batches (b + 1,), and the number of passages merged into the last one."""
    cuts = np.append(np.arange(0, num_passages, batch_passages), num_passages)
    last = num_passages - int(cuts[-2])
    if last >= least or len(cuts) == 2:
        return cuts, 0
    return np.delete(cuts, -2), last


def _known_positives(examples: list[Example]) -> dict[str, set[Content]]:
    """Return the contents of all positives by question; examples with the same question share theirs."""
    known: dict[str, set[Content]] = {}
    for example in examples:
        known.setdefault(example.question, set()).update(content_key(document) for document in example.positives)
    return known


def _find_excluded(
    examples: list[Example], known: dict[str, set[Content]], positives: Ints, columns: _Columns
) -> Bools:
    excluded = np.zeros((len(examples), len(columns.documents)), np.bool_)
    for row, example in enumerate(examples):
        others = [columns.column_of[content] for content in known[example.question] if content in columns.column_of]
        excluded[row, others] = True
    excluded[np.arange(len(examples)), positives] = False
    return excluded


def _teacher(examples: list[Example], columns: _Columns) -> Floats | None:
    if all(example.teacher is None for example in examples):
        return None
    scores = np.full((len(examples), len(columns.documents)), np.nan, np.float32)
    for row, example in enumerate(examples):
        for content, score in example.scores().items():
            if content in columns.column_of:
                scores[row, columns.column_of[content]] = score
    return scores
