"""Optional packages: imported late, and named with their install command when missing."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import shlex
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from mvindex.errors import ConfigError, ExtraMissing

FAISS_PACKAGES = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu12", "faiss-gpu-cu11", "faiss-gpu-cuvs")


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return __getattr__() and __dir__() of a package whose names are imported on first use (PEP 562).

    Args:
        package: The package.
        homes: By name, the module of the package that has it.

    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return load, lambda: sorted(homes)


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import and return a module; raise ExtraMissing, with the install command, when it is missing."""
    if "ipykernel" in sys.modules:
        _import_progress_bar()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as err:
        if err.name is None or err.name.split(".")[0] != module.split(".")[0]:
            raise
        raise ExtraMissing(f"{purpose} needs the package {module!r}: {install_command(extra)}") from err


def require_installed(module: str, extra: str, purpose: str) -> None:
    """Raise ExtraMissing, with the install command, when a module is missing; do not import it."""
    if importlib.util.find_spec(module) is None:
        raise ExtraMissing(f"{purpose} needs the package {module!r}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that adds an extra to mvindex as it is installed: from its checkout, or from the index."""
    checkout, is_editable = _installed_from()
    if checkout is None:
        return f"pip install 'mvindex[{extra}]'"
    return f"pip install {'-e ' if is_editable else ''}{shlex.quote(f'{checkout}[{extra}]')}"


def _installed_from() -> tuple[Path | None, bool]:
    """Return the folder that mvindex was installed from, if it is there, and whether it is editable (PEP 610)."""
    try:
        recorded = importlib.metadata.distribution("mvindex").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None, False
    origin = json.loads(recorded or "{}")
    folder = Path(url2pathname(urlsplit(origin.get("url", "")).path))
    if "dir_info" not in origin or not (folder / "pyproject.toml").is_file():
        return None, False
    return folder, bool(origin["dir_info"].get("editable", False))


def _import_progress_bar() -> None:
    """Import tqdm's bar for notebooks, with which libraries show progress, without its warning about ipywidgets."""
    with warnings.catch_warnings(), contextlib.suppress(ModuleNotFoundError):
        warnings.simplefilter("ignore")
        importlib.import_module("tqdm.auto")


def require_faiss() -> ModuleType:
    """Import Faiss; raise ConfigError for more than one of its packages, which break each other silently."""
    installed = [name for name in FAISS_PACKAGES if installed_version(name) is not None]
    if len(installed) > 1:
        raise ConfigError(
            f"{' and '.join(installed)} are installed together and overwrite each other's files; keep one: "
            f"pip uninstall -y {' '.join(installed)} && pip install --force-reinstall --no-deps {installed[0]}"
        )
    return require("faiss", "faiss", "the Faiss engine")


def installed_version(package: str) -> str | None:
    """Return the version of an installed package; None for one that is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
