"""The fixed splits of the shared collections: which passages are trained on, which choose a model, which test it.

The splits are by article or passage, never by question, so that no passage of one part is trained on in another:

- squad: test is questions.test.jsonl, of 16 articles. Of the articles of questions.train.jsonl, sorted by the SHA-256
  of their title in hexadecimal, the last DEV_ARTICLES are dev; the rest is train.
- squadshifts_amazon by title, squadshifts_reddit (which has one title for all) by the passage's text: the SHA-256 of
  it as a whole number, modulo 5: 0 is test, 1 is dev, the rest is train. Their titles mean nothing and are left out.
- squad_sentences and fever_sentences (qrels/train.tsv) are train alone: no dev, no test. FEVER's test queries
  (qrels/test.tsv) share some evidence sentences with its train queries, and are no clean test here.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from mvindex.errors import CorpusError
from mvindex.records import Document
from mvindex_train.data.answers import with_span
from mvindex_train.data.options import Part, ReadOptions
from mvindex_train.data.readers.beir import read_beir
from mvindex_train.data.readers.context import Reading, beside
from mvindex_train.data.readers.pairs import read_pairs
from mvindex_train.data.readers.questions import read_asked
from mvindex_train.data.records import ARTICLE, Example
from mvindex_train.data.report import Report

DEV_ARTICLES = 4
FOLDS = 5
FOLD_PARTS = {0: Part.TEST, 1: Part.DEV}


class SharedSet(enum.Enum):
    """The shared collections that are trained on; the value is the folder's name."""

    SQUAD = "squad"
    AMAZON = "squadshifts_amazon"
    REDDIT = "squadshifts_reddit"
    SQUAD_SENTENCES = "squad_sentences"
    FEVER_SENTENCES = "fever_sentences"


def shared_examples(folder: Path, part: Part, sets: Sequence[SharedSet] = tuple(SharedSet)) -> Iterator[Example]:
    """The examples of a part of the collections in a folder, one collection after the other, with answers' places.

    Ids begin with the collection's name, `squad/17`. A collection that is train alone gives nothing for another part.
    CorpusError when a collection's files are not there.
    """
    return (
        with_span(example, Report())
        for shared_set in sets
        for example in _read_set(folder / shared_set.value, part, shared_set)
    )


def read_shared(path: str, reading: Reading) -> Iterator[Example]:
    """The examples of the part that the options name, of all collections in the folder, without answers' places."""
    for shared_set in SharedSet:
        yield from _read_set(Path(path, shared_set.value), reading.options.part, shared_set)


def fold_part(key: str) -> Part:
    """The part of a title or text: by its hash modulo 5, so that a collection that grows keeps its split."""
    return FOLD_PARTS.get(int(_hash(key), 16) % FOLDS, Part.TRAIN)


def dev_articles(titles: set[str]) -> set[str]:
    """The titles held back for dev: the last DEV_ARTICLES in the order of their SHA-256."""
    return set(sorted(titles, key=_hash)[-DEV_ARTICLES:])


def _read_set(folder: Path, part: Part, shared_set: SharedSet) -> Iterator[Example]:
    if not folder.is_dir():
        raise CorpusError(f"{folder}: no such folder; wanted the shared collection {shared_set.value}")
    with ExitStack() as resources:
        for example in READERS[shared_set](folder, part, resources):
            yield _prefixed(example, shared_set.value)


def _read_squad(folder: Path, part: Part, resources: ExitStack) -> Iterator[Example]:
    if part is Part.TEST:
        return _read_asked(folder, "questions.test.jsonl", resources)
    titles = {example.positives[0].title for example in _read_asked(folder, "questions.train.jsonl", resources)}
    is_dev, held_back = part is Part.DEV, dev_articles(titles)
    examples = _read_asked(folder, "questions.train.jsonl", resources)
    return (example for example in examples if (example.positives[0].title in held_back) is is_dev)


def _read_shifted(
    folder: Path, part: Part, resources: ExitStack, *, key: Callable[[Document], str], has_articles: bool
) -> Iterator[Example]:
    for example in _read_asked(folder, "questions.jsonl", resources):
        passage = example.positives[0]
        if fold_part(key(passage)) is part:
            article = {ARTICLE: passage.title} if has_articles else {}
            yield replace(example, positives=(Document(passage.id, passage.text, "", article),))


def _read_asked(folder: Path, name: str, resources: ExitStack) -> Iterator[Example]:
    options = ReadOptions(passages=beside(folder, "passages.tsv"))
    return read_asked(beside(folder, name), Reading(options, Report(), resources))


def _read_sentences(folder: Path, part: Part, resources: ExitStack) -> Iterator[Example]:
    if part is Part.TRAIN:
        yield from read_pairs(beside(folder, "pairs.jsonl"), Reading(ReadOptions(), Report(), resources))


def _read_claims(folder: Path, part: Part, resources: ExitStack) -> Iterator[Example]:
    if part is Part.TRAIN:
        yield from read_beir(str(folder), Reading(ReadOptions(), Report(), resources))


READERS: dict[SharedSet, Callable[[Path, Part, ExitStack], Iterator[Example]]] = {
    SharedSet.SQUAD: _read_squad,
    SharedSet.AMAZON: partial(_read_shifted, key=lambda passage: passage.title, has_articles=True),
    SharedSet.REDDIT: partial(_read_shifted, key=lambda passage: passage.text, has_articles=False),
    SharedSet.SQUAD_SENTENCES: _read_sentences,
    SharedSet.FEVER_SENTENCES: _read_claims,
}


def _prefixed(example: Example, prefix: str) -> Example:
    return replace(
        example,
        question_id=f"{prefix}/{example.question_id}",
        positives=tuple(replace(document, id=f"{prefix}/{document.id}") for document in example.positives),
    )


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
