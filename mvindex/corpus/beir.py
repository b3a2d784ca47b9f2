"""Folders of the BEIR layout: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, plain or compressed."""

from __future__ import annotations

from pathlib import Path

from mvindex.errors import CorpusError

_ENDS = ("", ".gz", ".zst")


def beir_corpus(folder: str) -> str | None:
    """Return the corpus of a folder; None where it has none."""
    return _one_of(folder, "corpus.jsonl")


def beir_queries(folder: str) -> str:
    """Return the queries of a folder; raise CorpusError where it has none."""
    found = _one_of(folder, "queries.jsonl")
    if found is None:
        raise CorpusError(
            f"{folder}: expected a file of questions, or a folder with queries.jsonl as BEIR's; it has none"
        )
    return found


def beir_qrels(folder: str, split: str | None) -> str:
    """Return the judgements of a folder: those of a split, by default "test" or the only one.

    Raises CorpusError where there is no such file, or several and no test.
    """
    named = None if split is None else _one_of(folder, f"qrels/{split}.tsv")
    files = sorted(str(path) for path in Path(folder, "qrels").glob("*.tsv*"))
    test = _one_of(folder, "qrels/test.tsv") or (files[0] if len(files) == 1 else None)
    found = test if split is None else named
    if found is None:
        has = ", ".join(Path(file).name for file in files) or "none"
        raise CorpusError(
            f"{folder}: expected judgements in qrels/{split or 'test'}.tsv, or name them with --qrels; it has {has}"
        )
    return found


def _one_of(folder: str, name: str) -> str | None:
    paths = [Path(folder, name + end) for end in _ENDS]
    return next((str(path) for path in paths if path.is_file()), None)
