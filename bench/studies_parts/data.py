"""SQuAD's train split, and dev or test questions with their answers."""

import subprocess
import sys
from dataclasses import dataclass
from itertools import groupby

from squad_splits import read_split

from mvindex.corpus import read_documents
from mvindex_train.data import Split
from mvindex_train.data.records import article_of, write_example
from mvindex_train.evaluation import DevSet, make_dev_set
from studies_parts.settings import BATCH_PASSAGES, Size


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """Questions over a corpus; answers[i]: the strings that answer question i."""

    dev: DevSet
    answers: list[tuple[str, ...]]


def read_questions(data, size):
    """Read the questions. Small: dev, over the dev articles' passages. Full: test, over all passages."""
    examples = read_split(data / "squad", Split.DEV if size is Size.SMALL else Split.TEST)
    passages = read_documents(str(data / "squad/passages.tsv")) if size is Size.FULL else None
    return Questions(make_dev_set(examples, passages), [example.answers for example in examples])


def write_train(data, folder, plan, one_question):
    """Write the training examples and return the file; one_question: only the first of each passage (AVQ = 1)."""
    path = folder / train_name(plan, one_question)
    if not path.exists():
        examples = read_split(data / "squad", Split.TRAIN)
        chosen = _chosen(examples, plan.num_passages())
        seen = set()
        with path.open("wb") as file:
            for example in examples:
                passage = example.positives[0].id
                if passage in chosen and not (one_question and passage in seen):
                    write_example(example, file)
                seen.add(passage)
    return path


def train_name(plan, one_question):
    """Return the name of the file, which describes its content and is part of the settings' hash."""
    avq = "one-question" if one_question else "all-questions"
    passages = plan.num_passages()
    return f"squad-train.{'all' if passages is None else passages}-passages.{avq}.jsonl"


def write_bm25(data, folder, train):
    """Mine BM25 negatives of the training examples, for the full size, and return the file."""
    path = folder / f"bm25.{train.name}"
    if not path.exists():
        passages = data / "squad/passages.tsv"
        command = ["mine", train, "--bm25", "--passages", passages, "--out", path]
        subprocess.run([sys.executable, "-m", "mvindex", *map(str, command)], check=True, stdout=sys.stderr)
    return path


def _chosen(examples, num_passages):
    """Return the ids of the passages: a batch of consecutive ones of each of the first articles, or all."""
    ids = list(dict.fromkeys(example.positives[0].id for example in examples))
    if num_passages is None:
        return set(ids)
    article = {example.positives[0].id: article_of(example.positives[0]) for example in examples}
    chosen = [own for _, group in groupby(ids, article.__getitem__) if len(own := list(group)) >= BATCH_PASSAGES]
    return {one for own in chosen[: num_passages // BATCH_PASSAGES] for one in own[:BATCH_PASSAGES]}
