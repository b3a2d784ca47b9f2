"""The names of files that mvindex writes are allowed on Windows: copies pass through its disks and shares."""

from pathlib import PurePosixPath, PureWindowsPath

import numpy as np
import pytest

import mvindex
from mvindex.io.export import find_exporter
from mvindex.records import no_progress
from mvindex.testing import unit

RESERVED = {"con", "prn", "aux", "nul"} | {f"{name}{number}" for name in ("com", "lpt") for number in range(10)}


def reason_against(path):
    """Return why Windows does not keep a relative path as it is; None where it does."""
    for name in PurePosixPath(path).parts:
        if name.partition(".")[0].rstrip(" ").lower() in RESERVED:
            return f"{name}: reserved"
        if name[-1] in ". ":
            return f"{name}: ends in a dot or space"
        if any(character in '<>:"|?*\\' or ord(character) < 32 for character in name):
            return f"{name}: a character"
    return None if PureWindowsPath(path).as_posix() == path else f"{path}: another path"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("a/views.bin", None),
        ("console/com.txt/lpt11", None),
        ("generation-000001/.hidden", None),
        ("NUL", "reserved"),
        ("a/com1.json", "reserved"),
        ("aux .txt/b", "reserved"),
        ("a./b", "ends in"),
        ("a/b ", "ends in"),
        ("c:/a", "a character"),
        ("a/2026-11-28T10:00", "a character"),
        ("a\\b", "a character"),
        ("\\\\server\\share", "a character"),
    ],
)
def test_the_rules_of_windows(path, reason):
    found = reason_against(path)
    assert found is None if reason is None else reason in found


def names_below(folder):
    return [entry.relative_to(folder).as_posix() for entry in folder.rglob("*")]


@pytest.mark.needs("faiss")
@pytest.mark.parametrize("shards", [None, 2])
def test_an_index_its_snapshot_and_its_exports_have_names_that_windows_allows(tmp_path, shards):
    rng = np.random.default_rng(0)
    place = tmp_path / "a.mvx"
    with mvindex.create(place, dim=8, lexical="unicode", shards=shards) as index:
        # Ids are no names of files.
        ids = ["CON", "a:b", "x\\y", "c. ", *(f"d{number}" for number in range(300))]
        index.add_views(
            [mvindex.Document(name, f"text {name}") for name in ids], unit(rng.standard_normal((304, 2, 8)))
        )
        index.admin.build("flat")
        index.delete(ids=["CON"])
        index.admin.compact()
        index.admin.snapshot(tmp_path / "kept")
        for form in ("parquet", "npy", "jsonl"):
            find_exporter(form)(index, tmp_path / form, no_progress)
    names = names_below(tmp_path)
    assert len(names) > 20
    assert [reason_against(name) for name in names] == [None] * len(names)
    # Windows does not tell capitals from small letters.
    assert len({name.lower() for name in names}) == len(names)
