"""The ONNX form of query encoders: where it lies, and whether what lies there can be trusted.

A form is a folder made once for a checkpoint and a version of ONNX Runtime, and never changed:

    form.json        what the form is, and the size and checksum of every other file; or why there is no form
    model.onnx       the transformer: token ids and mask to the last states, optimised by ONNX Runtime
    weights.bin      its weights, which are mapped into memory
    tokenizer.json   the tokenizer as the checkpoint's settings have changed it
    head.onnx        the Dense modules, where the checkpoint has any
"""

from __future__ import annotations

import json
import logging
import os
import platform
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import xxhash

from mvindex.cache import cache_folder
from mvindex.durable import flush_to_disk, make_directories, remove_entry, rename

if TYPE_CHECKING:
    from mvindex.encoder.e5 import E5Words

logger = logging.getLogger(__name__)

FORM_VERSION = 2
MODEL, WEIGHTS, TOKENIZER, HEAD = "model.onnx", "weights.bin", "tokenizer.json", "head.onnx"
FORM = "form.json"
_UNFINISHED = ".making-"
# An unfinished folder as old as this is of a process that was killed.
_ABANDONED_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxForm:
    """A form that is there. width: dimensions of a state; pad_id: the token that pads.

    difference: the largest one from torch, of any element of the vectors compared when the form was made.
    is_packaged: it is a light form of mvindex' own, which encodes documents too. words: the tokenizer
    and the embeddings of tokens, where the graph takes these in place of ids; it has no torch form then.
    """

    folder: Path
    width: int
    pad_id: int
    has_head: bool
    difference: float
    is_packaged: bool = False
    words: E5Words | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no form: the architecture cannot be exported, or gives other vectors; versions: of what tried."""

    reason: str
    versions: str


FormState: TypeAlias = "OnnxForm | Refused | None"


def form_folder(fingerprint: str) -> Path:
    """Return the folder of the encoder's form: optimised graphs belong to a version of ONNX Runtime and a processor."""
    import onnxruntime

    return cache_folder() / "onnx" / f"{fingerprint}-ort{onnxruntime.__version__}-{platform.machine()}"


def find_form(fingerprint: str) -> FormState:
    """Return the encoder's form, or why it has none; None where none was made, or it is damaged."""
    try:
        folder = form_folder(fingerprint)
        content = json.loads((folder / FORM).read_bytes())
        return _checked(folder, content, fingerprint)
    except FileNotFoundError:
        return None
    except (OSError, ImportError) as err:
        logger.warning("the ONNX form of the encoder cannot be read: %s", err)
    except (ValueError, KeyError, TypeError) as err:
        logger.warning("%s: the ONNX form of an encoder is damaged: %s", folder, err)
    return None


def _checked(folder: Path, content: dict[str, Any], fingerprint: str) -> FormState:
    """Return the form that form.json tells of; ValueError, KeyError or TypeError where a file does not match it."""
    if content["fingerprint"] != fingerprint:
        raise ValueError(f"{FORM}: expected the form of {fingerprint}, got {content!r:.200}")
    if content["version"] != FORM_VERSION:
        return None  # of another release: it is made again
    if "refused" in content:
        return Refused(str(content["refused"]), str(content["versions"]))
    check_files(folder, content["files"])
    return OnnxForm(
        folder=folder,
        width=int(content["width"]),
        pad_id=int(content["pad_id"]),
        has_head=HEAD in content["files"],
        difference=float(content["difference"]),
    )


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Raise ValueError that names the first file whose size or checksum is not the expected one."""
    for name, expected in files.items():
        if (found := _summary(folder / name)) != expected:
            raise ValueError(f"{name}: expected {expected}, got {found}")


def _summary(path: Path) -> str:
    """Return the size and checksum of a file."""
    digest, size = xxhash.xxh3_128(), 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return f"{size} bytes, xxh3_128 {digest.hexdigest()}"


@contextmanager
def new_form(fingerprint: str) -> Iterator[Path]:
    """Yield a new folder, to be filled and ended by describe() or refuse(); it takes its place when the block ends.

    Processes may make the same form at once: the first one's stays.

    Raises:
        OSError: When the cache cannot be written.

    """
    target = form_folder(fingerprint)
    make_directories(target.parent)
    _remove_abandoned(target.parent)
    temporary = _unfinished(target.parent)
    temporary.mkdir()
    try:
        yield temporary
        for entry in sorted(temporary.iterdir()):
            flush_to_disk(entry)
        flush_to_disk(temporary)
        _take_place(temporary, target, fingerprint)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for other in target.parent.glob(f"{fingerprint}-ort*"):
        if other != target:
            remove_entry(other)


def _take_place(temporary: Path, target: Path, fingerprint: str) -> None:
    """Rename the folder to its place, unless a sound form was put there meanwhile."""
    if target.exists():
        if isinstance(find_form(fingerprint), OnnxForm):
            return
        # Damaged, or refused by older versions.
        old = _unfinished(target.parent)
        try:
            os.rename(target, old)
        except FileNotFoundError:
            logger.debug("%s was taken away meanwhile", target)
        remove_entry(old)
    try:
        rename(temporary, target)
    except OSError:
        if not target.exists():
            raise
        logger.debug("%s was made by another process", target)


def _unfinished(parent: Path) -> Path:
    """Return a path of this call's own, which _remove_abandoned() knows."""
    return parent / f"{_UNFINISHED}{os.getpid()}-{secrets.token_hex(4)}"


def _remove_abandoned(parent: Path) -> None:
    """Remove what processes left that were killed."""
    for entry in parent.glob(f"{_UNFINISHED}*"):
        try:
            is_old = time.time() - entry.stat().st_mtime > _ABANDONED_S
        except FileNotFoundError:
            continue
        if is_old:
            remove_entry(entry)


def describe(folder: Path, fingerprint: str, **facts: Any) -> None:
    """Write form.json: the facts, and the sizes and checksums of the folder's files."""
    entries = sorted(entry for entry in folder.rglob("*") if entry.is_file())
    files = {entry.relative_to(folder).as_posix(): _summary(entry) for entry in entries}
    _write(folder, fingerprint, facts | {"files": files})


def refuse(folder: Path, fingerprint: str, refused: Refused) -> None:
    """Write form.json that says why there is no form, and leave nothing else."""
    for entry in folder.iterdir():
        entry.unlink()
    _write(folder, fingerprint, {"refused": refused.reason, "versions": refused.versions})


def _write(folder: Path, fingerprint: str, content: dict[str, Any]) -> None:
    content = {"version": FORM_VERSION, "fingerprint": fingerprint, **content}
    (folder / FORM).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
