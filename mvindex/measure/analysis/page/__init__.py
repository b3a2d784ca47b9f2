"""The analysis report as one self-contained HTML file, without scripts.

cards.py       the measures: one card each, with its chart and its numbers
documents.py   maps of views, and the hardest questions side by side
overview.py    verdict, caveats, key figures, and how it was measured
charts.py      Vega-Lite charts as SVG (extra `reports`: altair and vl-convert-python)
markup.py      HTML that is escaped by default; numbers as text
style.css      light and dark, paper, and narrow screens
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.resources
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mvindex.errors import ConfigError
from mvindex.measure.analysis.page.markup import Markup, element
from mvindex.plugins import require

_FEW_VIEWS = 12


def write_page(report: Mapping[str, Any], path: Path, *, force: bool = False) -> None:
    """Write the report as one HTML file that opens without a network.

    The file appears complete under its name or not at all.

    Args:
        report: What `mvindex.measure.analysis.analyze` returns. Its texts reach the page as text only.
        path: The file to write.
        force: Whether to replace a file that exists.

    Raises:
        ConfigError: The file exists and force is False, it is not a plain file, or it cannot be written.
        ExtraMissing: The packages of the extra `reports` are not installed.

    """
    check_target(path, force)
    page = make_page(report).encode()
    target = path.resolve()
    with _file_errors(target):
        # Next to the target, so that the rename stays within one file system.
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with unfinished.open("wb") as file, _removing(unfinished):
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
            check_target(target, force)
            unfinished.replace(target)


def check_target(path: Path, force: bool) -> None:
    """Check that a report can be written to this path, before there is any work to lose.

    Raises:
        ConfigError: As in write_page.
        ExtraMissing: As in write_page.

    """
    for package in ("altair", "vl_convert"):
        require(package, "reports", "the HTML report")
    with _file_errors(path):
        target = path.resolve()
        if not target.parent.is_dir():
            raise ConfigError(f"{target.parent}: is not a folder; name the report in one that exists")
        if target.exists() and not target.is_file():
            raise ConfigError(f"{target}: is not a plain file; name a new file for the report")
        if target.exists() and not force:
            raise ConfigError(f"{target}: exists; choose another name, or overwrite it with --force")


def make_page(report: Mapping[str, Any]) -> str:
    """Return the report's HTML, with a policy that forbids scripts and every connection."""
    # Late: altair takes half a second to import, and only the HTML report needs it.
    from mvindex.measure.analysis.page import overview
    from mvindex.measure.analysis.page.cards import CHAPTERS

    chapters = {name: [card.show(report) for card in cards] for name, cards in CHAPTERS.items()}
    chapters["How this was measured"] = overview.origin(report)
    links = (element("li", element("a", name, href=f"#{_anchor(name)}")) for name in ("Verdict", *chapters))
    foot = f"Made by mvindex {report['version']}. Slots count from 0. This page holds no script and loads nothing."
    body = element(
        "body",
        element("a", "Skip to the report", class_="skip", href="#content"),
        element("header", overview.title(report)),
        element("nav", element("ul", links), aria_label="Contents"),
        element(
            "main",
            overview.verdict(report), overview.caveats(report), overview.tiles(report),
            (_chapter(name, cards) for name, cards in chapters.items()),
            id="content",
        ),
        element("footer", foot),
    )  # fmt: skip
    # On paper, the tables and texts of many views need smaller type.
    kind = "many" if report["subject"]["most_views"] > _FEW_VIEWS else None
    html = element("html", _head(overview.subject_name(report)), body, lang="en", class_=kind)
    return f"<!doctype html>\n{html}\n"


def _chapter(name: str, cards: list[Markup]) -> Markup:
    heading = element("h2", name, id=f"{_anchor(name)}-title")
    content = element("div", cards, class_="cards")
    return element("section", heading, content, id=_anchor(name), aria_labelledby=f"{_anchor(name)}-title")


def _head(name: str) -> Markup:
    style = (importlib.resources.files(__name__) / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        # The policy is quoted by `"` and holds no other character that needs an escape.
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{name} \u00b7 mvindex view analysis"),
        element("style", Markup(style)),
    )


def _anchor(name: str) -> str:
    return "".join(letter if letter.isalpha() else "-" for letter in name.lower()).strip("-")


@contextlib.contextmanager
def _removing(unfinished: Path) -> Iterator[None]:
    """Remove the unfinished file, whether the block ends well or not."""
    try:
        yield
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def _file_errors(target: Path) -> Iterator[None]:
    """Turn errors of the file system in the block into ConfigErrors that name the file."""
    try:
        yield
    except OSError as err:
        raise ConfigError(f"{target}: cannot be written: {err.strerror or err}") from err
