"""Make a store, complete or not at all: its directory, and an empty generation in it."""

from __future__ import annotations

import fcntl
import glob
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mvindex.durable import DIRECTORY_MODE, flush_to_disk, make_directories, map_write_errors, rename
from mvindex.errors import ConfigError, StoreError
from mvindex.store import catalog
from mvindex.store.files import Current, refuse_network, write_acknowledged, write_current
from mvindex.store.generation import generation_name
from mvindex.store.id_ranges import ID_RANGES_KEY
from mvindex.store.rows import FORMAT_VERSION

logger = logging.getLogger(__name__)


def create_store(directory: Path, settings: Mapping[str, Any]) -> None:
    """Make a new empty store at the directory, complete or not at all.

    settings: dtype (a ViewType value), dim (int, or None until the first batch) and whatever the caller keeps with
    the index. ConfigError when the path exists; StoreError when it cannot be made.
    """
    if os.path.lexists(directory):
        raise ConfigError(f"{directory} exists already; open it by mvindex.open(), or remove it first")
    refuse_network(directory)
    index_id = secrets.token_hex(16)
    try:
        with atomic_directory(directory) as building:
            generation = building / generation_name(1)
            generation.mkdir(DIRECTORY_MODE)
            start_generation(generation, {"next_ordinal": 0, "version": 0, **settings}, number=1, index_id=index_id)
            write_current(building, Current(format_version=FORMAT_VERSION, generation=1, index_id=index_id), settings)
    except StoreError as err:
        if os.path.lexists(directory):
            raise ConfigError(f"{directory} exists already: another process made it just now; open it") from err
        raise


def start_generation(directory: Path, settings: Mapping[str, Any], *, number: int, index_id: str) -> None:
    """Make an empty generation in the directory."""
    base = {"format_version": FORMAT_VERSION, "generation": number, "index_id": index_id, "engine": None}
    catalog.create(
        directory,
        {
            **settings,
            **base,
            "deleted": {"count": 0, "checksum": 0},
            "ids": {"live": [0, 0], "deleted": [0, 0]},
            ID_RANGES_KEY: True,
        },
    )
    write_acknowledged(directory, int(settings["version"]))
    for entry in sorted(directory.iterdir()):
        flush_to_disk(entry)
    flush_to_disk(directory)


@contextmanager
def atomic_directory(directory: Path) -> Iterator[Path]:
    """Yield a directory to fill, which is then renamed to its place, durably; on an error nothing is left.

    Leftovers of processes that were killed here are removed: they are not locked. StoreError when the directory cannot
    be written.
    """
    with map_write_errors(directory):
        make_directories(directory.parent)
        remove_leftovers(directory.parent, glob.escape(directory.name))
        with _locked_aside(directory) as building:
            yield building
            flush_to_disk(building)
            rename(building, directory)


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove working directories that killed processes left in the folder, of directories that match the pattern."""
    for left in folder.glob(f".{pattern}.*.new"):
        _remove_abandoned(left)


def discard_directory(directory: Path) -> None:
    """Remove a directory; a kill in the middle leaves a leftover, and nothing under its name."""
    aside = _name_aside(directory)
    directory.rename(aside)
    shutil.rmtree(aside)


@contextmanager
def scratch_directory(name: str) -> Iterator[Path]:
    """Yield a new directory of this user among the temporary files, which is removed at the end.

    One that a killed process left is removed by the next.
    """
    place = Path(tempfile.gettempdir()) / name
    remove_leftovers(place.parent, name)
    with _locked_aside(place, mode=0o700) as folder:
        yield folder
        shutil.rmtree(folder)


@contextmanager
def _locked_aside(directory: Path, mode: int = DIRECTORY_MODE) -> Iterator[Path]:
    """Yield a new directory beside this one, locked while it is being filled, and removed after an error."""
    building = _name_aside(directory)
    handle: int | None = None
    try:
        # Inside, since Ctrl-C may come as soon as the directory exists.
        building.mkdir(mode)
        handle = os.open(building, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # without flock, leftovers stay
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield building
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    finally:
        if handle is not None:
            os.close(handle)


def _name_aside(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.{os.getpid()}.{secrets.token_hex(4)}.new")


def _remove_abandoned(directory: Path) -> None:
    """Remove what atomic_directory() was filling when its process was killed; nothing while that process runs."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    except OSError:
        logger.info("%s is being made by another process, or cannot be locked; it stays", directory)
    finally:
        os.close(handle)
