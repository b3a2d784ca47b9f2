"""A sync is killed at random moments; the next one completes it, and the index equals the folder."""

import os
import random
import subprocess
import sys
import time

import pytest

import mvindex
from tests.durability.processes import ROOT
from tests.helpers.folders import Counting, documents_of, held, note, write

KILLS = 40 if os.environ.get("MVINDEX_LONG") == "1" else 6
FILES = 60


def begin(folder, place, cache):
    command = [sys.executable, "-m", "tests.durability.kills.sync_once", str(folder), str(place)]
    environment = os.environ | {"MVINDEX_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    return child


def change(folder, version, rng):
    """Change, delete and add files, so that a sync adds, replaces and deletes."""
    for number in rng.sample(range(FILES), FILES // 2):
        path = folder / f"{number}.md"
        if path.exists() and rng.random() < 0.3:
            path.unlink()
        else:
            text = note(number, version)
            write(folder, **{path.name: text if rng.random() < 0.5 else text.partition("## More")[0]})


def open_with_encoder(place):
    index = mvindex.open(place)
    index.use_encoder(Counting().encoder())
    return index


def test_a_killed_sync_is_completed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    rng = random.Random(0)
    folder, place = tmp_path / "notes", tmp_path / "i.mvx"
    write(folder, **{f"{number}.md": note(number) for number in range(FILES)})
    foreign = mvindex.Document("foreign", "from elsewhere")
    with mvindex.create(place, encoder=Counting().encoder()) as index:
        index.add([foreign])
    child = begin(folder, place, tmp_path / "cache")
    begun = time.monotonic()
    assert child.communicate()[0] == "True\n"
    duration = time.monotonic() - begun

    partial = 0
    for version in range(1, KILLS + 1):
        before = documents_of(folder)
        change(folder, version, rng)
        expected = documents_of(folder)
        child = begin(folder, place, tmp_path / "cache")
        time.sleep(rng.random() * duration)
        child.kill()
        child.communicate()
        with open_with_encoder(place) as index:
            left = held(index)
            assert left.pop("foreign") == (foreign.title, foreign.text, {})
            # Every document is an old or a new one, whole.
            assert all(left[doc_id] in (before.get(doc_id), expected.get(doc_id)) for doc_id in left)
            partial += left not in (before, expected)
            assert mvindex.sync_folder(index, str(folder)).is_complete
            assert held(index) == expected | {"foreign": (foreign.title, foreign.text, {})}
    if KILLS > 6 and not partial:
        pytest.fail("no kill came in the middle of a sync")
