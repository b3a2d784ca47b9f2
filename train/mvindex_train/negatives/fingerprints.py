"""What a mining run depends on, as JSON: equal for two runs only if they write the same file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import xxhash

from mvindex.checkpoint import read_checkpoint
from mvindex.encoder.cross_encoder import cross_encoder_fingerprint
from mvindex.errors import ConfigError
from mvindex.index.factory import open_index
from mvindex.store.segments import file_checksum
from mvindex_train.negatives.config import MiningJob


def job_settings(job: MiningJob) -> dict[str, Any]:
    """The job's settings by name, with checksums of what its files hold instead of their names.

    ConfigError: a file is missing or cannot be read, or is stdin, which a run that goes on could not read again.
    """
    chosen = dataclasses.asdict(job.config)
    del chosen["work_folder"]
    return {
        "questions": [_path_checksum(path) for path in job.questions],
        "format": job.format.value if job.format else None,
        "passages": _path_checksum(job.passages) if job.passages else None,
        "index": _index_checksum(job.index) if job.index else None,
        "source": job.source.value,
        "encoder": read_checkpoint(job.encoder).fingerprint if job.encoder else None,
        "cross_encoder": cross_encoder_fingerprint(job.cross_encoder) if job.cross_encoder else None,
        "merge": _path_checksum(job.merge) if job.merge else None,
        **chosen,
    }


def _path_checksum(name: str) -> str:
    """The checksum of a file, or of all files of a folder with their names."""
    path = Path(name)
    if name == "-":
        raise ConfigError("stdin cannot be read again when an interrupted run goes on; save it to a file")
    try:
        if not path.is_dir():
            return file_checksum(path)
        files = sorted(entry for entry in path.rglob("*") if entry.is_file())
        parts = [f"{entry.relative_to(path)} {file_checksum(entry)}" for entry in files]
    except OSError as err:
        raise ConfigError(f"{name}: cannot be read: {err.strerror or err}") from err
    return xxhash.xxh3_128_hexdigest("\n".join(parts).encode())


def _index_checksum(path: Path) -> dict[str, Any]:
    """The documents of an index in their order, and what their ranking depends on."""
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
