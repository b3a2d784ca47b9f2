"""The files of Milvus' bulk import: `mvindex export --to milvus-bulk DIR`; bulk_import.py imports them.

manifest.json        settings, and the shards that are written, each with its number of documents and views
views-00000/         pk.npy, doc.npy, vec.npy: a set of NumPy files for the collection of views
records-00000.json   rows as JSON for the collection of records
settings.json        one more row of records: imported last, it makes the collections an index
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.durable import map_write_errors, replace_text
from mvindex.errors import ConfigError, StoreError
from mvindex.index import Index, store_of
from mvindex.kernels.score import decode
from mvindex.records import Floats, ProgressCallback
from mvindex.store.rows import Batch
from mvindex.store.views import row_norms
from mvindex_connectors.milvus.collections import new_settings, settings_record
from mvindex_connectors.milvus.layout import documents_of, view_keys
from mvindex_connectors.milvus.reader import check_limits, new_records

FORMAT, MANIFEST, SETTINGS = 1, "manifest.json", "settings.json"
SHARD_BATCHES = 16
_COPIED_SETTINGS = ("dim", "dtype", "encoder", "temperature", "prune_views")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The files that were written.

    Attributes:
        directory: Where they are.
        documents: Number of documents.
        views: Number of views.
        shards: Number of shards.
        written: Number of shards written by this run; the others were complete already.

    """

    directory: str
    documents: int
    views: int
    shards: int
    written: int


def export_bulk(index: Index, directory: Path, on_progress: ProgressCallback) -> ExportReport:
    """Write the whole index as files for a bulk import; go on where an interrupted run stopped.

    Args:
        index: The index.
        directory: A new directory, or that of an interrupted export.
        on_progress: Called with a step, documents done, and all documents.

    Raises:
        ConfigError: When the directory has the export of another index or state.

    """
    source = {"index_id": str(index.settings["index_id"]), "version": int(index.settings["version"])}
    manifest = _begin(directory, source, index.where)
    total, written, documents = len(index), 0, 0
    for number, batches in enumerate(_shards(index)):
        count = sum(len(batch.documents) for batch in batches)
        if number >= len(manifest["shards"]):
            shard = _write_shard(directory, number, batches, documents)
            manifest["shards"].append(shard)
            manifest["max_norm"] = max(manifest["max_norm"], shard.pop("norm"))
            _write_json(directory / MANIFEST, manifest)
            written += 1
        documents += count
        on_progress("exporting", documents, total)
    settings = _settings(index, manifest, documents)
    _write_rows(directory / SETTINGS, [settings_record(settings)])
    manifest["settings"] = settings
    _write_json(directory / MANIFEST, manifest)
    return ExportReport(
        directory=str(directory),
        documents=documents,
        views=int(settings["views"]),
        shards=len(manifest["shards"]),
        written=written,
    )


def _shards(index: Index) -> Iterator[list[Batch]]:
    gathered: list[Batch] = []
    for batch in store_of(index).batches(1024):
        gathered.append(batch)
        if len(gathered) == SHARD_BATCHES:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def _begin(directory: Path, source: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the manifest of the directory: a new one, or that of an interrupted run."""
    path = directory / MANIFEST
    fresh: dict[str, Any] = {"format": FORMAT, "source": dict(source), "shards": [], "max_norm": 0.0}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            if any(directory.iterdir()):
                raise ConfigError(f"{directory}: expected a new directory or an export, got one that is not empty")
            return fresh
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise StoreError(f"{directory}: cannot be written: {err.strerror or err}") from err
    except ValueError as err:
        raise StoreError(f"{path}: expected the manifest of an export, got no JSON: {err}") from err
    if manifest.get("format") != FORMAT or manifest.get("source") != source:
        raise ConfigError(f"{directory}: expected an export of {where}, got one of another index, or of an older state")
    return manifest


def _write_shard(directory: Path, number: int, batches: list[Batch], first: int) -> dict[str, Any]:
    """Write the files of a shard; return its entry in the manifest. first: the number of its first document."""
    keys_of: list[Any] = []
    vectors: list[Floats] = []
    records: list[dict[str, Any]] = []
    for batch in batches:
        check_limits(batch)
        numbers = np.arange(first, first + len(batch.documents))
        ordinals = numbers if batch.ordinals is None else batch.ordinals
        keys = {"pk": numbers.tolist(), "version": [0] * len(numbers), "ordinal": ordinals.tolist()}
        rows = decode(batch.views.rows)
        records += new_records(batch, rows, keys)
        keys_of.append(view_keys(numbers, np.zeros_like(numbers), np.diff(batch.views.starts)))
        vectors.append(rows)
        first += len(numbers)
    pks, views = np.concatenate(keys_of), np.concatenate(vectors)
    _write_arrays(directory / f"views-{number:05d}", {"pk": pks, "doc": documents_of(pks), "vec": views})
    _write_rows(directory / f"records-{number:05d}.json", records)
    counts = [len(batch.views.starts) - 1 for batch in batches]
    return {
        "documents": sum(counts),
        "views": len(views),
        "max_views": max(int(np.diff(batch.views.starts).max()) for batch in batches),
        "last_ordinal": max(record["ordinal"] for record in records),
        "norm": float(row_norms(views).max()),
    }


def _settings(index: Index, manifest: Mapping[str, Any], documents: int) -> dict[str, Any]:
    shards = manifest["shards"]
    copied = {name: index.settings.get(name) for name in _COPIED_SETTINGS}
    counted = {
        "next_document": documents,
        "next_ordinal": max([int(index.settings["next_ordinal"]), *(shard["last_ordinal"] + 1 for shard in shards)]),
        "documents": documents,
        "views": sum(shard["views"] for shard in shards),
        "max_views": max([0, *(shard["max_views"] for shard in shards)]),
        "max_norm": manifest["max_norm"],
        "has_views": bool(shards),
    }
    return {**new_settings(copied), **counted}


def _write_arrays(folder: Path, arrays: Mapping[str, Any]) -> None:
    """Write the arrays to a folder, which is complete or absent."""
    temporary = folder.with_name(f".{folder.name}.new")
    with map_write_errors(folder):
        for path in (temporary, folder):
            shutil.rmtree(path, ignore_errors=True)
        temporary.mkdir()
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array, allow_pickle=False)
        temporary.rename(folder)


def _write_rows(path: Path, records: list[dict[str, Any]]) -> None:
    rows = [{name: _plain(value) for name, value in record.items()} for record in records]
    _write_json(path, {"rows": rows})


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _write_json(path: Path, value: Any) -> None:
    with map_write_errors(path):
        replace_text(path, json.dumps(value, ensure_ascii=False), path.with_name(f".{path.name}.new"))
