"""Damage files of an index by the thousand, and check what is answered, reported, rebuilt, saved, and not made worse.

    nice python bench/damage.py --damages 20000 --seed 1 [--processes 2] [--only log] [--json]

Each damage is done to a copy of one of five small indexes (tests/durability/damage/kits.py), to one of its files: cut,
lengthened, a bit, byte, sector or page changed, emptied, removed, swapped with that of an older state, an older
generation or another index, replaced by a link, a directory or a pipe. Then all queries are made (each is answered
rightly or refused), `verify` run (it names file and document), `salvage` (it saves what is intact, and nothing else),
`repair` and `build` (they make again what is derived), and one write (it makes nothing worse). Prints a row for each
file and family of kinds; exits 1 if a promise was broken. --one CASE:FILE:KIND:SEED[:WRITE] tries one damage again.
The short form is tests/durability/test_damage.py.
"""

import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import harness

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import print_table  # noqa: E402 - after the settings above

from tests.durability.damage.cases import make_case  # noqa: E402 - after the settings above
from tests.durability.damage.files import Role  # noqa: E402 - as above
from tests.durability.damage.kinds import Damage  # noqa: E402 - as above
from tests.durability.damage.kits import KITS  # noqa: E402 - as above
from tests.durability.damage.run import planned, prepare, run  # noqa: E402 - as above

# Trials of the index with blocks take seconds; it is there for the blocks.
SHARES = {"texts": 0.25, "vectors": 0.25, "log": 0.3, "compacted": 0.18, "blocks": 0.02}
CHUNK = 50
FAMILIES = {
    "cut": ("cut to 0", "cut at random", "last byte cut", "cut at a page"),
    "lengthened": ("extended",),
    "bit or byte": ("bit flipped", "byte changed"),
    "sector or page": ("sector of noise", "sector zeroed", "page zeroed", "zeroed"),
    "removed": ("deleted",),
    "swapped": ("older copy", "older generation", "another index's", "an emptied one's", "older, with its log"),
    "replaced": ("link", "directory", "pipe"),
}
FAMILY_OF = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}
COLUMNS = (
    "file",
    "kind",
    "damages",
    "harmful",
    "seen",
    "refused",
    "right",
    "WRONG",
    "rebuilt",
    "saved",
    "lost",
    "lost intact",
    "saved wrong",
    "written",
    "faults",
)
CASES = {}


def tried(name, damages, folder):
    """Return the outcomes, in a process of the pool."""
    return list(run(CASES[name], damages, Path(folder, f"trial-{os.getpid()}")))


def one_tried(one, folder):
    """Return the outcome of one damage."""
    name, file, kind, seed, *write = one.split(":")
    case = make_case(KITS[name], Path(folder, name))
    return run(case, [Damage(Role(file), kind, int(seed), *write)], Path(folder, "trial"))


def all_tried(options, folder, note):
    """Return the outcome of every damage."""
    shares = {name: SHARES[name] for name in options.only or SHARES}
    chunks = []
    for name, share in shares.items():
        CASES[name] = make_case(KITS[name], Path(folder, name))
        count = max(round(options.damages * share / sum(shares.values())), 1)
        damages = planned(CASES[name], count, options.seed)
        chunks += [(name, damages[begin : begin + CHUNK]) for begin in range(0, count, CHUNK)]
        note(f"{name}: {len(CASES[name].now.stored)} documents, {count:,} damages")
    gc.freeze()  # children share its pages
    found = []
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        for done in as_completed([pool.submit(tried, *chunk, folder) for chunk in chunks]):
            found += done.result()
            note(f"{len(found):,} tried, {sum(bool(each['faults']) for each in found)} with faults")
    return found


def summed(outcomes):
    """Return a row of the table, without its name."""
    derived = [each["rebuilt"] for each in outcomes if each["rebuilt"] is not None]
    return {
        "damages": len(outcomes),
        "harmful": sum(each["must_be_seen"] for each in outcomes),
        "seen": sum(each["is_seen"] for each in outcomes),
        "refused": sum(each["raised"] for each in outcomes),
        "right": sum(each["right"] for each in outcomes),
        "WRONG": sum(each["wrong"] for each in outcomes),
        "rebuilt": f"{sum(derived)}/{len(derived)}" if derived else "-",
        "saved": sum(each["saved"] for each in outcomes),
        "lost": sum(each["lost"] for each in outcomes),
        "lost intact": sum(each["wrongly_lost"] for each in outcomes),
        "saved wrong": sum(each["wrongly_saved"] for each in outcomes),
        "written": sum(bool(each["has_written"]) for each in outcomes),
        "faults": sum(len(each["faults"]) for each in outcomes),
    }


def by_file_and_kind(outcomes):
    groups = defaultdict(list)
    for each in outcomes:
        groups[each["file"], FAMILY_OF[each["kind"]]].append(each)
    order = [(role.value, family) for role in Role for family in FAMILIES]
    rows = [{"file": key[0], "kind": key[1], **summed(groups[key])} for key in order if key in groups]
    return [*rows, {"file": "all", "kind": "", **summed(outcomes)}]


def main():
    parser = harness.parser(__doc__, damages=1000, seed=1, processes=2, json=False)
    parser.add_argument("--one", metavar="CASE:FILE:KIND:SEED[:WRITE]", help="this damage only")
    parser.add_argument("--only", action="append", choices=SHARES, help="this index; repeatable")
    parser.add_argument("--folder", type=Path, help="where the indexes are; a temporary folder. Best in memory")
    options = harness.parse(parser, damages=4, processes=1, only=["texts"])
    prepare()
    started = time.monotonic()
    note = lambda text: print(f"{time.monotonic() - started:6.0f} s: {text}", file=sys.stderr, flush=True)  # noqa: E731
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        outcomes = [*one_tried(options.one, folder)] if options.one else all_tried(options, folder, note)
    rows = by_file_and_kind(outcomes)
    broken = [each for each in outcomes if each["faults"]]
    if options.json:
        print(json.dumps({"seed": options.seed, "rows": rows, "faults": broken}, ensure_ascii=False))
    else:
        print_table(COLUMNS, rows)
        for each in broken:
            print(f"--one '{each['case']}:{each['file']}:{each['kind']}:{each['seed']}:{each['write']}'")
            print(*(f"    {kind}: {what}" for kind, what in each["faults"]), sep="\n")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
