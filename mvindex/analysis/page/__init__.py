"""The analysis report as one self-contained HTML file.

template.html      the skeleton: landmarks, and the places for policy, style, data and script
styles/*.css       colours, layout, summary, cards, plots, texts, print; joined in the order of STYLES
scripts/*.js       one concept a file; joined in the order of SCRIPTS into one function, so they share their names
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.resources
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mvindex.errors import ConfigError

STYLES = ("colours", "layout", "summary", "figures", "plots", "documents", "print")
SCRIPTS = (
    # the ground: elements, numbers, scales
    "elements", "numbers", "scales",
    # plots
    "marks", "plot", "axes", "bars", "lines", "heat", "scatter",
    # parts of cards
    "tables", "figure", "choice", "spans",
    # what is told, from top to bottom
    "targets", "verdict", "tiles", "recall", "fewer", "usage", "likeness", "training", "answers",
    "map", "hardest", "origin",
    # the page itself
    "theme", "main",
)  # fmt: skip


def write_page(report: Mapping[str, Any], path: Path, *, force: bool = False) -> None:
    """Write the report as one HTML file that opens without a network; it appears whole under its name or not at all.

    report: what `mvindex analyze --json` prints. Its texts reach the page as text only.
    ConfigError: the file exists and force is False, is not a plain file, its folder is missing or cannot be written,
    or the report holds what JSON cannot (NaN, infinity, an array).
    """
    check_target(path, force)
    page = make_page(report).encode("ascii")
    target = path.resolve()
    with _writing(target):
        # Next to the target, so that the rename stays within one file system.
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with unfinished.open("wb") as file, _removing(unfinished):
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
            check_target(target, force)
            unfinished.replace(target)


def check_target(path: Path, force: bool) -> None:
    """Nothing, where a page may be written; else write_page's ConfigError, before there is any work to lose."""
    with _writing(path):
        target = path.resolve()
        if not target.parent.is_dir():
            raise ConfigError(f"{target.parent}: is not a folder; name the page in one that exists")
        if target.exists() and not target.is_file():
            raise ConfigError(f"{target}: is not a plain file; name a new file for the page")
        if target.exists() and not force:
            raise ConfigError(f"{target}: exists; choose another name, or overwrite it with --force")


def make_page(report: Mapping[str, Any]) -> str:
    """The page's HTML, plain ASCII, with style, script and data inside and a policy that forbids every connection."""
    style = "\n".join(_read(f"styles/{name}.css") for name in STYLES)
    script = _one_function([_read(f"scripts/{name}.js") for name in SCRIPTS])
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _read("template.html")
    # The data come last: what they hold is then never taken for a place to fill.
    for place, content in (("policy", policy), ("style", style), ("script", script), ("data", _embedded(report))):
        page = page.replace(f"<!--{place}-->", content)
    return page


def _one_function(parts: list[str]) -> str:
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


def _embedded(report: Mapping[str, Any]) -> str:
    """JSON that no text can break out of: ASCII without `<`, `>` and `&`, each still the same character once parsed."""
    try:
        text = json.dumps(report, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as err:
        raise ConfigError(f"the report cannot be written as JSON, so there is no page: {err}") from err
    for character in "<>&\x7f":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _hash(content: str) -> str:
    """The Content-Security-Policy source that lets exactly this inline content in."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return (importlib.resources.files(__name__) / name).read_text(encoding="ascii")


@contextlib.contextmanager
def _removing(unfinished: Path) -> Iterator[None]:
    """Leaves no unfinished file behind, whether its block ends well or not."""
    try:
        yield
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Turns the file system's refusals in its block into ConfigErrors that name the page."""
    try:
        yield
    except OSError as err:
        raise ConfigError(f"{target}: cannot be written: {err.strerror or err}") from err
