"""Fingerprints of the inputs of a run, which decide whether an interrupted run can be resumed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import xxhash

from mvindex.durable import file_checksum
from mvindex.encoder.checkpoint import read_checkpoint
from mvindex.encoder.cross_encoder import cross_encoder_fingerprint
from mvindex.errors import ConfigError
from mvindex.index.factory import open_index
from mvindex_train.negatives.config import MiningJob


def job_settings(job: MiningJob) -> dict[str, Any]:
    """Return the settings of a mining job by name, with checksums of its files in place of their names.

    Raises ConfigError for a file that is missing, unreadable or stdin, which a resumed run could not read again.
    """
    options = dataclasses.asdict(job.config)
    del options["work_folder"]
    return {
        "questions": [path_checksum(path) for path in job.questions],
        "format": job.format.value if job.format else None,
        "passages": path_checksum(job.passages) if job.passages else None,
        "index": _index_checksum(job.index) if job.index else None,
        "source": job.source.value,
        "encoder": read_checkpoint(job.encoder).fingerprint if job.encoder else None,
        "cross_encoder": cross_encoder_fingerprint(job.cross_encoder) if job.cross_encoder else None,
        "merge": path_checksum(job.merge) if job.merge else None,
        **options,
    }


def path_checksum(name: str) -> str:
    """Return the checksum of a file, or of all files of a folder with their names; raise ConfigError for stdin."""
    path = Path(name)
    if name == "-":
        raise ConfigError(
            "expected input files, got - (stdin), which a resumed run cannot read again. Save it to a file"
        )
    try:
        if not path.is_dir():
            return file_checksum(path)
        files = sorted(entry for entry in path.rglob("*") if entry.is_file())
        parts = [f"{entry.relative_to(path)} {file_checksum(entry)}" for entry in files]
    except OSError as err:
        raise ConfigError(f"{name}: cannot be read: {err.strerror or err}") from err
    return xxhash.xxh3_128_hexdigest("\n".join(parts).encode())


def _index_checksum(path: Path) -> dict[str, Any]:
    """Return a checksum of the documents of an index, and all that their ranking depends on."""
    digest = xxhash.xxh3_128()
    with open_index(path) as index:
        info = index.info()
        for document in index:
            for part in (document.id, document.title, document.text):
                data = part.encode()
                digest.update(len(data).to_bytes(8, "little"))
                digest.update(data)
    encoder = info.encoder["fingerprint"] if info.encoder else None
    ranking = {"encoder": encoder, "dtype": info.dtype, "kind": info.kind, "views": info.views}
    return {"documents": digest.hexdigest(), **ranking}
