"""Read weights from safetensors files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mvindex.encoder.checkpoint.settings import first_line
from mvindex.errors import CheckpointError
from mvindex.plugins import require


def read_tensors(path: Path) -> dict[str, Any]:
    """Return name -> tensor of a safetensors file; raise CheckpointError where it is none."""
    reader = require("safetensors.torch", "train", "encoding texts")
    try:
        tensors: dict[str, Any] = reader.load_file(path)
    except Exception as err:  # noqa: BLE001 - a size or kind of number that is wrong raises what torch raises then
        raise CheckpointError(f"{path}: cannot be read: {first_line(err)}") from err
    return tensors
