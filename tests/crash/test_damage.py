"""Files of an index are cut, changed, swapped and removed; then it is read, verified, salvaged, repaired, written to.

The long form, with as many damages as one likes, is bench/damage.py.
"""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

from damage_kinds import KINDS

RUNNER = Path(__file__).with_name("damage_runner.py")
SHORT = ("texts", "vectors", "log")
# What a trial may find wrong, by the promise that is broken.
ANSWERS = {"wrong answer", "exception", "crashes", "hangs", "read only"}
NAMES = {"unseen", "false alarm", "file not named", "document not named"}
REPAIRS = {"not rebuilt", "repair changed", "refused, but changed"}
SALVAGE = {"intact, not saved", "wrongly saved", "came back", "unsound", "loss not told"}
WRITES = {"made worse", "damage copied", "litter"}


def outcomes(*options):
    """What became of the trials, by a process of its own that may fork."""
    command = [sys.executable, str(RUNNER), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def faults(found, kinds):
    """Those of these kinds, with the options of the runner that show them again."""
    return [
        (f"--cases {each['case']} --one '{each['file']}:{each['kind']}:{each['seed']}:{each['write']}'", kind, what)
        for each in found
        for kind, what in each["faults"]
        if kind in kinds
    ]


def damages():
    """Those of all five indexes with FULL=1, else of three. Trials of the index with blocks take seconds."""
    common = ["--damages", "40", "--seed", "1", "--cases"]
    if os.environ.get("FULL") != "1":
        return outcomes(*common, *SHORT)
    return outcomes(*common, *SHORT, "compacted") + outcomes("--damages", "5", "--seed", "2", "--cases", "blocks")


def test_damage_is_named_never_answered_from_mended_where_derived_saved_where_sound_and_never_made_worse():
    """One test, so that the trials run once."""
    tried = damages()
    assert {(each["case"], each["kind"]) for each in tried} >= set(product(SHORT, KINDS))
    no_wrong_answer(tried)
    named(tried)
    made_again(tried)
    saved(tried)
    not_made_worse(tried)


def no_wrong_answer(tried):
    """No question is answered from damaged data; nothing but errors of mvindex' own is raised."""
    assert faults(tried, ANSWERS) == []
    assert {each["file"] for each in tried if each["raised"]} >= {"views", "catalog.sqlite", "rows", "current.json"}
    assert sum(each["right"] for each in tried) > 1000


def named(tried):
    """verify names every damage and its document, and is silent where nothing is lost."""
    assert faults(tried, NAMES) == []
    assert sum(each["must_be_seen"] for each in tried) > 60
    assert sum(not each["is_seen"] for each in tried) > 5


def made_again(tried):
    """What is derived is made again, and nothing else is touched."""
    assert faults(tried, REPAIRS) == []
    assert {each["file"] for each in tried if each["rebuilt"]} == {"current.json", "acknowledged", "rows", "engine"}


def saved(tried):
    """salvage saves every intact document, and nothing that never was."""
    assert faults(tried, SALVAGE) == []
    assert sum(each["wrongly_lost"] + each["wrongly_saved"] for each in tried) == 0
    assert any(0 < each["lost"] < each["saved"] for each in tried)


def not_made_worse(tried):
    """A write to a damaged index makes nothing worse and copies no damage."""
    assert faults(tried, WRITES) == []
    assert {each["has_written"] for each in tried} == {True, False}


def test_every_kind_of_fault_is_found_out_in_a_store_that_has_it():
    from damage_broken import BROKEN

    found = {each["broken"]: {kind for kind, _ in each["faults"]} for each in outcomes("--cases", "log", "--broken")}
    assert found.keys() == BROKEN.keys()
    assert [name for name, broken in BROKEN.items() if broken.fault not in found[name]] == []
