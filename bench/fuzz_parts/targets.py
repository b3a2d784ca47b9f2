"""The targets by name, each with its module and its share of a run's inputs."""

import importlib
import sys
from pathlib import Path

# name -> (module of fuzz_parts, share); slow ones have small shares.
TARGETS = {
    "corpus-detect": ("corpus_text", 1.0),
    "corpus-dpr": ("corpus_text", 1.0),
    "corpus-msmarco": ("corpus_text", 0.5),
    "corpus-beir": ("corpus_text", 0.5),
    "corpus-jsonl": ("corpus_text", 1.0),
    "corpus-csv": ("corpus_text", 1.0),
    "corpus-json": ("corpus_text", 1.0),
    "corpus-packed": ("corpus_packed", 0.5),
    "corpus-parquet": ("corpus_parquet", 0.3),
    "questions": ("questions", 1.0),
    "qrels": ("qrels", 0.5),
    "trec": ("trec", 0.3),
    "answers": ("answers", 0.3),
    "filters": ("filters", 1.5),
    "checkpoint-files": ("checkpoint_files", 1.0),
    "checkpoint-tensors": ("checkpoint_tensors", 0.5),
    "checkpoint-model": ("checkpoint_model", 0.05),
    "exchange-pickle": ("exchange_pickle", 1.0),
    "index-catalog": ("index_bytes", 0.5),
    "index-files": ("index_bytes", 0.3),
    "index-hostile": ("index_hostile", 0.4),
}


def open_target(name: str, folder: Path):
    """Return the target of that name, with a folder to write in."""
    module = importlib.import_module(f"fuzz_parts.{TARGETS[name][0]}")
    return module.open_target(name, folder)


def chosen(begin: str) -> dict[str, float]:
    """Return the share of each target whose name begins so."""
    found = {name: share for name, (_, share) in TARGETS.items() if begin == "all" or name.startswith(begin)}
    return found or sys.exit(f"--target {begin}: expected all or one of {', '.join(TARGETS)}")
