"""Damage is named, never answered from, mended where derived, saved from where sound, and never made worse.

The long form, with as many damages as you like, is bench/damage.py.
"""

import os
from itertools import product

import pytest

from tests.durability.damage.broken import BROKEN
from tests.durability.damage.kinds import KINDS
from tests.durability.processes import call

RUN = "tests.durability.damage.run"
SHORT = ("texts", "log")
# The kinds of faults of a trial, by the promise that is broken.
ANSWERS = {"wrong answer", "exception", "crashes", "hangs", "read only"}
NAMES = {"unseen", "false alarm", "file not named", "document not named"}
REPAIRS = {"not rebuilt", "repair changed", "refused, but changed"}
SALVAGE = {"intact, not saved", "wrongly saved", "came back", "unsound", "loss not reported"}
WRITES = {"made worse", "damage copied", "litter"}


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Trials on two indexes, with FULL=1 on all five. Those on the index with blocks take seconds each."""

    def tried(names, damages, seed):
        return call(f"{RUN}:tried", names, str(folder), damages=damages, seed=seed, prepared_by=f"{RUN}:prepare")

    folder = tmp_path_factory.mktemp("damage")
    if os.environ.get("FULL") != "1":
        return tried(SHORT, 40, 1)
    return tried([*SHORT, "vectors", "compacted"], 40, 1) + tried(["blocks"], 2, 2)


def faults(trials, kinds):
    """Return the faults of these kinds, with the option of bench/damage.py that shows each again."""
    return [
        (f"--one '{each['case']}:{each['file']}:{each['kind']}:{each['seed']}:{each['write']}'", kind, what)
        for each in trials
        for kind, what in each["faults"]
        if kind in kinds
    ]


def test_every_kind_of_damage_is_tried_on_every_index(trials):
    assert {(each["case"], each["kind"]) for each in trials} >= set(product(SHORT, KINDS))


def test_no_query_is_answered_from_damaged_data_and_only_errors_of_mvindex_are_raised(trials):
    assert faults(trials, ANSWERS) == []
    assert {each["file"] for each in trials if each["raised"]} >= {"views", "catalog.sqlite", "rows", "current.json"}
    assert sum(each["right"] for each in trials) > 1000


def test_verify_names_every_damage_and_its_document_and_gives_no_false_alarm(trials):
    assert faults(trials, NAMES) == []
    assert sum(each["must_be_seen"] for each in trials) > 40
    assert sum(not each["is_seen"] for each in trials) > 3


def test_repair_and_build_make_derived_files_again_and_change_nothing_else(trials):
    assert faults(trials, REPAIRS) == []
    assert {each["file"] for each in trials if each["rebuilt"]} == {"current.json", "acknowledged", "rows", "engine"}


def test_salvage_saves_every_intact_document_and_nothing_that_never_was(trials):
    assert faults(trials, SALVAGE) == []
    assert sum(each["wrongly_lost"] + each["wrongly_saved"] for each in trials) == 0
    assert any(0 < each["lost"] < each["saved"] for each in trials)


def test_a_write_to_a_damaged_index_makes_nothing_worse_and_copies_no_damage(trials):
    assert faults(trials, WRITES) == []
    assert {each["has_written"] for each in trials} == {True, False}


def test_rows_that_sqlite_finds_only_among_their_neighbours_are_saved(tmp_path):
    """A page seems to hold more cells than it does: a search in it for one number goes wrong, a scan does not."""
    damages = [["catalog.sqlite", "bit flipped", 2436215933, "snapshot"]]
    [trial] = call(f"{RUN}:tried_again", "vectors", str(tmp_path), damages, prepared_by=f"{RUN}:prepare")
    assert trial["faults"] == [] and trial["must_be_seen"] and trial["saved"] >= 23


def test_trials_find_every_kind_of_fault_in_a_store_that_has_it(tmp_path):
    found = call(f"{RUN}:tried_on_broken_stores", "log", str(tmp_path), prepared_by=f"{RUN}:prepare")
    assert found.keys() == BROKEN.keys()
    assert [name for name, broken in BROKEN.items() if broken.fault not in found[name]] == []
