"""Collections by their ir_datasets names, copied once into a folder of the BEIR layout: `ir_datasets:vaswani`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mvindex.cache import cache_folder
from mvindex.errors import CorpusError
from mvindex.plugins import require

PREFIX = "ir_datasets:"


def folder_of(name: str) -> str:
    """Return the folder of a collection; a name without the prefix is returned as it is.

    The folder lies in the cache (MVINDEX_CACHE, else XDG_CACHE_HOME) and appears when it is complete. What the
    collection lacks (queries, judgements) the folder lacks.

    Raises:
        CorpusError: ir_datasets knows no such collection, it has no documents, or it cannot be fetched.
        ExtraMissing: ir_datasets is not installed.

    """
    if not name.startswith(PREFIX):
        return name
    chosen = name.removeprefix(PREFIX)
    library = require("ir_datasets", "reports", name)
    try:
        dataset = library.load(chosen)
    except KeyError as err:
        raise CorpusError(f"{name}: ir_datasets knows no collection of this name") from err
    if not dataset.has_docs():
        raise CorpusError(f"{name}: expected a collection with documents, this one has none")
    folder = cache_folder() / "ir_datasets" / chosen.replace("/", "--")
    if not folder.is_dir():
        _copy(dataset, folder, name)
    return str(folder)


def _copy(dataset: Any, folder: Path, name: str) -> None:
    """Write the collection into the folder, which gets its name last."""
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        (unfinished / "qrels").mkdir(parents=True)
        _write(unfinished / "corpus.jsonl", map(_document, dataset.docs_iter()))
        if dataset.has_queries():
            queries = ({"_id": one.query_id, "text": one.default_text()} for one in dataset.queries_iter())
            _write(unfinished / "queries.jsonl", queries)
        if dataset.has_qrels():
            with (unfinished / "qrels" / "test.tsv").open("w", encoding="utf-8") as file:
                file.write("query-id\tcorpus-id\tscore\n")
                file.writelines(f"{one.query_id}\t{one.doc_id}\t{one.relevance}\n" for one in dataset.qrels_iter())
        unfinished.rename(folder)
    except (OSError, RuntimeError) as err:
        raise CorpusError(f"{name}: cannot be fetched into {folder}: {err}") from err
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _document(one: Any) -> dict[str, str]:
    """Return a document with its title apart from its text, where the collection has both."""
    title = getattr(one, "title", None) or ""
    body = next((value for field in ("text", "body", "abstract") if (value := getattr(one, field, None))), None)
    return {"_id": one.doc_id, "title": title if body else "", "text": body or one.default_text()}


def _write(path: Path, rows: Iterable[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
