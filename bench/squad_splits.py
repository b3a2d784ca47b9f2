"""Write SQuAD's questions in three splits by article, so that no passage is in two of them.

    python bench/squad_splits.py --data DIR --out DIR

DIR of --data contains passages.tsv, questions.train.jsonl and questions.test.jsonl, whose questions name a passage_id.
dev: of the articles of questions.train.jsonl, sorted by the SHA-256 of their title, the last four; train: the others;
test: questions.test.jsonl. Written are train.jsonl, dev.jsonl and test.jsonl, which `mvindex train` reads.
"""

import hashlib
from pathlib import Path

import harness

from mvindex_train.data import ReadOptions, Split, read_training, write_example
from mvindex_train.data.records import article_of

DEV_ARTICLES = 4


def read_split(folder, split):
    """Return the examples of a split, with their answer spans."""
    name = "questions.test.jsonl" if split is Split.TEST else "questions.train.jsonl"
    examples = list(read_training([str(folder / name)], ReadOptions(passages=str(folder / "passages.tsv"))))
    if split is Split.TEST:
        return examples
    articles = sorted({article(example) for example in examples}, key=_sha256)
    return [example for example in examples if (article(example) in articles[-DEV_ARTICLES:]) is (split is Split.DEV)]


def article(example):
    return article_of(example.positives[0])


def write_split(folder, split, path):
    """Write the examples of a split to a file that `mvindex train` reads."""
    with path.open("wb") as file:
        for example in read_split(folder, split):
            write_example(example, file)


def _sha256(title):
    return hashlib.sha256(title.encode()).hexdigest()


def main():
    parser = harness.parser(__doc__, data=Path, out=Path)
    options = harness.parse(parser, data=harness.DATA, out=harness.OUT)
    options.out.mkdir(parents=True, exist_ok=True)
    for split in Split:
        write_split(
            options.data / "squad" if options.tiny else options.data, split, options.out / f"{split.value}.jsonl"
        )


if __name__ == "__main__":
    main()
