"""Links, sockets and devices in place of an index's files or in the way of its writes, and names that lead out of it.

Here the index is hostile: beside it are files of another index, whose texts must not be read through it and which must
not be changed. No call may hang or raise an error that is not mvindex's. Links as damage: test_damage.py.
"""

import os
import shutil

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, StoreError
from tests.durability.faults.cases import found_by
from tests.durability.faults.links import SECRET

OURS = {"StoreError", "DamagedIndex", "EngineUnavailable", "StaleReader"}


@pytest.fixture(scope="module")
def in_place(tmp_path_factory):
    """Make each call with something else in the place of a file."""
    return found_by("links", "in_place_of_files", tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def led_out(tmp_path_factory):
    """Make each call with names in the catalog that lead out of the index."""
    return found_by("links", "names_that_lead_out", tmp_path_factory.mktemp("names"))


def check_calls(found, number):
    """Check that all calls were made, and none of them hung, or read or changed what is not part of the index."""
    for name, trial in found.items():
        assert trial["changed"] == [], name
        assert len(trial["calls"]) == number, name
        for call, outcome in trial["calls"].items():
            assert "result" in outcome or outcome["error"] in OURS, (name, call, outcome)
            assert SECRET not in str(outcome.get("result")), (name, call)


def test_a_link_in_the_place_of_a_file_is_never_followed(in_place):
    check_calls(in_place, 8)
    kinds = {name.split(": ")[1] for name in in_place}
    assert len(in_place) == 9 * len(kinds) and kinds >= {"a link", "a link to nothing", "a socket"}


def test_what_is_in_the_place_of_a_file_is_named(in_place):
    for name, trial in in_place.items():
        file, kind = name.split(": ")
        file = "index.faiss" if file == "engine" else file
        what = "symbolic link" if "link" in kind else "no regular file"
        # Only writers use the lock; an engine is not read to add documents or to make another.
        for call in ("write", "compact") if file == "writer.lock" else ("look", "snapshot"):
            outcome = trial["calls"][call]
            assert outcome.get("error") == "StoreError", (name, call, outcome)
            assert file in outcome["message"] and what in outcome["message"], (name, call, outcome)
        problems = trial["calls"]["verify"]["result"]
        assert any(file in problem and what in problem for problem in problems), (name, problems)


def test_derived_files_are_made_again_in_the_place_of_a_link(in_place):
    for file in ("current.json", "acknowledged", "rows"):
        assert len(in_place[f"{file}: a link"]["calls"]["repair"]["result"]) == 1


def test_all_documents_are_salvaged_where_other_files_are_replaced(in_place):
    for file in ("current.json", "acknowledged", "rows", "engine", "writer.lock"):
        for kind in ("a link", "a link to nothing", "a socket"):
            assert len(in_place[f"{file}: {kind}"]["calls"]["salvage"]["result"]) == 16, (file, kind)
    # SQLite needs its lock file, and makes it again once what is in its place is moved away.
    for kind in ("a link", "a link to nothing", "a socket"):
        outcome = in_place[f"catalog.sqlite-shm: {kind}"]["calls"]["salvage"]
        assert outcome["error"] == "StoreError" and "catalog.sqlite-shm: " in outcome["message"], outcome
        assert "Move it away" in outcome["message"]


def test_a_name_that_leads_out_of_the_index_is_refused_and_not_followed(led_out):
    check_calls(led_out, 8)
    for name, trial in led_out.items():
        for call in ("look", "snapshot", "build", "write", "compact"):
            assert trial["calls"][call].get("error") == "DamagedIndex", (name, call)
            assert "catalog.sqlite" in trial["calls"][call]["message"], (name, call)


def test_an_index_that_cannot_be_opened_is_not_reported_as_sound(led_out):
    for name, trial in led_out.items():
        assert trial["calls"]["verify"]["result"], name


def test_links_in_the_way_of_a_write_are_neither_followed_nor_harmful(tmp_path):
    found = found_by("links", "in_the_way", tmp_path)
    check_calls(found, 1)
    for name, trial in found.items():
        assert trial["after"]["problems"] == [], name
        (call,) = trial["calls"]
        is_done = "result" in trial["calls"][call]
        wanted = {"write": 16 + 2 * is_done, "compact": 15}.get(call, 16)  # the deletion before it is its own commit
        assert trial["after"]["documents"] == wanted, name


@pytest.fixture
def path(tmp_path):
    with mvindex.create(tmp_path / "i.mvx", dim=4) as index:
        index.add_views([mvindex.Document(str(number), "t") for number in range(5)], np.eye(5, 4) + 0.25)
        index.delete(ids="0")
    return tmp_path / "i.mvx"


def test_an_index_is_found_through_a_link_to_its_directory(path, tmp_path):
    """The user chose the link; only what is inside the index must not lead elsewhere."""
    (tmp_path / "link.mvx").symlink_to(path)
    with mvindex.open(tmp_path / "link.mvx") as index:
        assert index.delete(ids="1") == 1
        assert index.admin.compact().dropped == 2
    assert mvindex.verify(path).documents == 3 and (tmp_path / "link.mvx").is_symlink()


@pytest.mark.parametrize("is_there", [True, False])
def test_no_copy_is_written_through_a_link(is_there, path, tmp_path):
    outside = tmp_path / "outside"
    if is_there:
        outside.mkdir()
    target = tmp_path / "copy.mvx"
    target.symlink_to(outside)
    with mvindex.open(path) as index:
        for call in (lambda: index.admin.snapshot(target), lambda: mvindex.salvage(path, target)):
            with pytest.raises((ConfigError, StoreError), match="copy.mvx"):
                call()
    with pytest.raises((ConfigError, StoreError), match="copy.mvx"):
        mvindex.create(target, dim=4)
    assert target.is_symlink() and (list(outside.iterdir()) == [] if is_there else not outside.exists())


def test_a_copy_made_of_hard_links_is_never_changed_by_halves(path, tmp_path):
    """As `cp -al` makes one: both names are the same files, so a write shows in both of them, or is refused."""
    copy = tmp_path / "linked.mvx"
    shutil.copytree(path, copy, copy_function=os.link)
    try:
        with mvindex.open(path) as index:
            index.add_views([mvindex.Document("new", "t")], np.ones((1, 1, 4)))
    except StoreError:
        with mvindex.open(path) as index:
            assert len(index) == 4
    for each in (path, copy):
        assert mvindex.verify(each).is_sound
        with mvindex.open(each) as index:
            ids = {document.id for document in index}
            assert {hit.id for hit in index.search(np.ones(4), top_k=9).hits} == ids >= {"1", "2", "3", "4"}
