"""The files of a checkpoint that are read before any weights: one of them changed, or a link or folder in its place.

An input's first byte chooses the layout, the second the file, the third what becomes of it; the rest is its content.
"""

import json
import os
import shutil
from pathlib import Path

from fuzz_parts.checkpoint_layouts import LAYOUTS
from fuzz_parts.opened_files import only_below
from fuzz_parts.target import Limits, require
from mvindex.encoder.checkpoint import read_checkpoint
from mvindex.encoder.checkpoint.settings import Settings
from mvindex.errors import CheckpointError

_KEYS = ("max_views", "normalise", "temperature", "residual", "own_snippet", "separate", "label")
_FATES = ("content",) * 5 + ("link out", "link within", "link to itself", "folder", "gone", "pipe")


def open_target(name: str, folder: Path):
    return CheckpointFiles(folder)


class CheckpointFiles(Limits):
    """A checkpoint of some layout, read without its weights. Links are followed: a hub's cache consists of them."""

    name = "checkpoint-files"
    refusals = (CheckpointError,)
    extra_mib = 32
    tokens = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"NaN", b'"../outside/x.safetensors"',
              b'"/dev/zero"', b'"../outside"', b'"auto_map": {}', b'"base": {"source": "../outside"}', b'"..\\u002f"',
              b'"max_views": -1', b'"family": "single"', b'"r": 0', b'"\\u0000"', b'"\\ud800"', b'"path": "/"',
              b'"model.bin"', b'"pytorch_model.bin"', b'"format_version": 1', b'"a/b"', b"\xff")  # fmt: skip

    def __init__(self, folder: Path) -> None:
        os.chdir(folder)
        self._folder, self._base, self._outside = folder / "model", folder / "base", folder / "outside"
        for place in (self._base, self._outside):
            _write(place, LAYOUTS[0])
            (place / "pytorch_model.bin").write_bytes(b"\x80\x04.")
        (self._outside / "x.safetensors").write_bytes(b"secret")
        self._layout = LAYOUTS[0]
        _write(self._folder, self._layout)
        read_checkpoint(self._folder)

    def seeds(self) -> list[bytes]:
        found = [
            bytes([number, place, 0]) + content
            for number, layout in enumerate(LAYOUTS)
            for place, content in enumerate(layout.values())
            if len(content) > 10
        ]
        return found + [bytes([number, fate % 3, fate]) for number in range(len(LAYOUTS)) for fate in range(5, 11)]

    def check(self, data: bytes) -> None:
        number, place, fate = (*data[:3], 0, 0, 0)[:3]
        layout = LAYOUTS[number % len(LAYOUTS)]
        name = list(layout)[place % len(layout)]
        if layout is not self._layout:
            shutil.rmtree(self._folder)
            _write(self._folder, {each: self._named(content) for each, content in layout.items()})
            (self._folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
            self._layout = layout
        path = self._folder / name
        self._change(path, _FATES[fate % len(_FATES)], self._named(data[3:]))
        try:
            self._check()
        finally:
            if path.is_dir():
                path.rmdir()
            path.unlink(missing_ok=True)
            path.write_bytes(self._named(layout[name]))

    def _named(self, content: bytes) -> bytes:
        return content.replace(b"{base}", bytes(self._base))

    def _check(self) -> None:
        with only_below(self._folder, self._base, self._outside):
            found = read_checkpoint(self._folder)
        self._check_places(found)
        self._check_settings(found.settings)
        again = read_checkpoint(self._folder)
        require(found == again, "read twice:", found, again)

    def _change(self, path: Path, fate: str, content: bytes) -> None:
        if fate == "content":
            path.write_bytes(content)
            return
        path.unlink()
        if fate == "folder":
            path.mkdir()
        elif fate == "pipe":
            os.mkfifo(path)
        elif fate != "gone":
            target = {"link out": self._outside / path.name, "link within": Path("config.json"), "link to itself": path}
            path.symlink_to(target[fate])

    def _check_places(self, found) -> None:
        folder = os.path.realpath(self._folder)
        require(os.path.realpath(found.folder).startswith(folder), "read from", found.folder)
        require(all(".." not in name and not name.startswith("/") for name in found.weights), "weights", found.weights)

    def _check_settings(self, settings: Settings) -> None:
        """Check that the settings are what mvindex.json plainly says."""
        path = self._folder / "mvindex.json"
        said = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for key in _KEYS:
            require(key not in said or said[key] == getattr(settings, key), key, "is", settings, "wanted", said)
        for key, names in {"lengths": "length", "prompts": "prompt"}.items():
            for side, value in said.get(key, {}).items():
                require(getattr(settings, f"{side}_{names}") == value, key, "are", settings, "wanted", said)
        if "family" in said:
            require(settings.family.name == said["family"], "the family is", settings, "wanted", said)


def _write(folder: Path, layout: dict[str, bytes]) -> None:
    for name, content in layout.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
