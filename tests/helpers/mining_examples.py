"""Examples to mine negatives for."""

from mvindex.records import Document
from mvindex_train.data.records import Example

POSITIVE = Document("p", "the positive")


def example(question="what?", positives=(POSITIVE,), answers=(), question_id="q"):
    return Example(question_id, question, tuple(positives), answers=tuple(answers))


def ids(documents):
    return [document.id for document in documents]
