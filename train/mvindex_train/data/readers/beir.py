"""BEIR folders: corpus.jsonl, queries.jsonl and the judgements of qrels/SPLIT.tsv."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from mvindex.measure.questions import read_qrels
from mvindex_train.data.readers.context import ReadContext, find_file, has_file
from mvindex_train.data.records import Example


def is_beir(path: str) -> bool:
    """Return whether the path is a folder with a BEIR corpus, or a qrels file of one."""
    return os.path.isdir(_folder(path)) and has_file(_folder(path), "corpus.jsonl")


def read_beir(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield the judged queries of a folder, or of one of its qrels files, in the order of the judgements.

    Documents with a grade above 0 are positives, in descending order of grade, then in the order of the file.
    """
    folder = _folder(path)
    qrels = find_file(Path(folder, "qrels"), f"{context.options.split.value}.tsv") if os.path.isdir(path) else path
    queries, corpus = (context.corpus(find_file(folder, name)) for name in ("queries.jsonl", "corpus.jsonl"))
    for query_id, grades in read_qrels(qrels).items():
        place = f"{qrels}: query {query_id!r}"
        positives = tuple(corpus.get(doc_id, place) for doc_id in _relevant(grades))
        if context.has_positive(positives):
            yield Example(query_id, queries.get(query_id, place).text, positives)


def _relevant(grades: Mapping[str, int]) -> list[str]:
    relevant = [doc_id for doc_id, grade in grades.items() if grade > 0]
    return sorted(relevant, key=lambda doc_id: -grades[doc_id])


def _folder(path: str) -> str:
    if os.path.isdir(path):
        return path
    parent = Path(path).parent
    return str(parent.parent) if parent.name == "qrels" else path
