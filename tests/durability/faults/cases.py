"""Cases that need a process of their own: mounts, another user, limits, or nothing else open."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mvindex.errors import MvindexError
from tests.durability.mounts import own_mounts
from tests.durability.processes import call


def found_by(module: str, name: str, folder: str | Path, is_mounting: bool = False) -> dict:
    """Run a case, a function of a module beside this one, in a child; skip the test where it must mount and may not."""
    if is_mounting and own_mounts() is None:
        pytest.skip("NOT RUN: needs a user who may mount a tmpfs (root, or user namespaces) and unshare (util-linux)")
    prepared_by = "tests.durability.faults.trials:prepare"
    return call(f"{__name__}:run", module, name, str(folder), is_mounting=is_mounting, prepared_by=prepared_by)


def run(module: str, name: str, folder: str) -> dict:
    """Run a case in this process."""
    return getattr(importlib.import_module(f"tests.durability.faults.{module}"), name)(Path(folder))


def outcome(work: Callable[[], Any]) -> dict:
    """Return the result of the work, or its error: class, "raw" before one that is not mvindex's, and message."""
    try:
        return {"result": work()}
    except MvindexError as err:
        return {"error": type(err).__name__, "message": str(err)}
    except Exception as err:  # noqa: BLE001 - a test reports what is not an error of mvindex's
        return {"error": f"raw {type(err).__name__}", "message": repr(err)}
