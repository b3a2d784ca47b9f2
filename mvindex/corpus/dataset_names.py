"""Datasets of Hugging Face by name or folder, streamed: `datasets:NAME`, `datasets:NAME:SPLIT`."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.rows import Reject, Row, Source
from mvindex.corpus.tables import BATCH_ROWS, Table, first_line, open_table
from mvindex.errors import CorpusError
from mvindex.plugins import require

PREFIX = "datasets:"
_DEFAULT_SPLIT = "train"
# A folder of Dataset.save_to_disk and one of DatasetDict.save_to_disk.
_SAVED = ("state.json", "dataset_dict.json")


def is_dataset(path: str) -> bool:
    """Return whether a path names a dataset rather than a file."""
    return path.startswith(PREFIX)


def open_dataset(name: str, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how a dataset is read, by its columns and first rows, and its rows.

    Args:
        name: `datasets:` and a name or folder, then a split or a configuration and a split, with colons between.
        options: The fields.

    Raises:
        CorpusError: There is no such dataset or split, or it cannot be read.
        ExtraMissing: datasets is not installed.

    """
    library = require("datasets", "datasets", f"reading {name}")
    place, config, split = _parse(name)
    with _dataset_errors(library, name):
        loaded = _load(library, place, config)
        if loaded is None:
            raise CorpusError(f"{name}: has no documents")
        dataset = _choose_split(loaded, split, name).with_format("arrow")
        with closing(dataset.iter(batch_size=1)) as tables:
            first = next(tables, None)
    if first is None:
        raise CorpusError(f"{name}: has no documents")

    def batches(columns: Sequence[str]) -> Generator[Any, None, None]:
        with _dataset_errors(library, name):
            with closing(dataset.iter(batch_size=BATCH_ROWS)) as tables:
                for table in tables:
                    yield from table.select(list(columns)).to_batches()

    return open_table(Table(path=name, format="datasets", schema=first.schema, batches=batches), options)


def _parse(name: str) -> tuple[str, str | None, str | None]:
    """Return the name or folder, the configuration and the split."""
    rest = name.removeprefix(PREFIX)
    place, *chosen = [rest] if os.path.exists(rest) else rest.rsplit(":", 2 if rest.count(":") > 1 else 1)
    if not place or not all(chosen):
        raise CorpusError(f"{name}: expected {PREFIX}NAME, {PREFIX}NAME:SPLIT or {PREFIX}NAME:CONFIGURATION:SPLIT")
    return place, chosen[0] if len(chosen) == 2 else None, chosen[-1] if chosen else None


def _load(library: Any, place: str, config: str | None) -> Any:
    """Return the dataset, or its splits by name, None for an empty one; nothing but what is read of it is fetched."""
    if any(os.path.exists(os.path.join(place, file)) for file in _SAVED):
        try:
            return library.load_from_disk(place)
        except IndexError:  # of a dataset that was saved without rows
            return None
    return library.load_dataset(place, config, streaming=True)


def _choose_split(loaded: Any, split: str | None, name: str) -> Any:
    """Return one split: the named one, else the only one, else "train"."""
    if not isinstance(loaded, dict):
        if split is not None:
            raise CorpusError(f"{name}: expected no split, since the folder holds a single one; leave :{split} out")
        return loaded
    chosen = split or (next(iter(loaded)) if len(loaded) == 1 else _DEFAULT_SPLIT)
    if chosen not in loaded:
        raise CorpusError(f"{name}: expected a split of {', '.join(loaded)}, got {chosen}; name it: {PREFIX}NAME:SPLIT")
    return loaded[chosen]


@contextmanager
def _dataset_errors(library: Any, name: str) -> Iterator[None]:
    """Turn the errors of the library, and of pyarrow below it, into CorpusErrors."""
    arrow = require("pyarrow", "datasets", f"reading {name}")
    try:
        yield
    except (library.exceptions.DatasetsError, arrow.ArrowException, OSError, ValueError, RuntimeError) as err:
        raise CorpusError(f"{name}: cannot be read: {first_line(err) or type(err).__name__}") from err
