"""Kill writers by the thousand: at every named step of every operation, then at random moments, and real commands.

    nice python bench/kills.py --kills 1000 --seed 1 [--commands 50] [--only replace] [--json]

After each kill another process checks the index: what was acknowledged is there, no batch or document is partial, and
searches equal brute force over what is there. Then the operation is run again (sometimes killed up to three times in a
row first): ordinals, texts, spans and views must be byte for byte those of a run without interruption, and no file may
be left over. Prints a row for each operation, and each fault with the moment that shows it; exits 1 if there was any.
The short form is tests/durability/test_kills.py.
"""

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import harness

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import print_table  # noqa: E402 - after the settings above

from tests.durability.commands import INGEST, command_operations, large_ingest  # noqa: E402 - after the settings above
from tests.durability.kills.trials import OPERATIONS, Trials, prepare  # noqa: E402 - as above

COLUMNS = (
    "operation",
    "at steps",
    "at random",
    "finished first",
    "lost",
    "partial",
    "other",
    "after resume",
    "open ms",
)
# After it was run again: an error, other documents, files left over. Other: faults of a search, a reader or an open.
_AFTER, _OTHER = ("stuck", "different", "litter"), ("unreadable", "search", "reader", "slow", "damaged")


def at_steps(benches, report):
    for name, bench in benches.items():
        bench.kill_at_steps(len(bench.steps), random.Random(0))
        report(name, bench)


def at_random(benches, count, generator):
    """Kill so many more processes, of one operation after the other."""
    names = list(benches)
    turn, done = 0, 0
    while done < count:
        bench = benches[names[turn % len(names)]]
        before = bench.tally.at_random
        bench.kill_at_random(min(3, count - done), generator)
        done += bench.tally.at_random - before
        turn += 1


def kill_all(benches, folder, options):
    """Kill as many processes as the options say. benches: filled with the trials of each operation."""
    generator, started = random.Random(options.seed), time.monotonic()

    def note(text):
        print(f"{time.monotonic() - started:6.0f} s: {text}", file=sys.stderr, flush=True)

    chosen = options.only or list(OPERATIONS)
    for name in chosen:
        benches[name] = Trials(OPERATIONS[name], folder / "api" / name)
    at_steps(benches, lambda name, bench: note(f"{name}: {bench.tally.at_steps} steps"))
    if options.commands and not options.only:
        kill_commands(benches, folder, (options.commands, generator))
        note(f"{options.commands} commands")
    done = sum(bench.tally.kills for bench in benches.values())
    at_random({name: benches[name] for name in chosen}, options.kills - done, generator)
    note("random moments")


def kill_commands(benches, folder, chosen):
    """Kill so many processes of the command line and add their trials to benches. chosen: count, generator."""
    count, generator = chosen
    (folder / "made").mkdir()
    of_commands = {INGEST: large_ingest(folder / "made"), **command_operations(is_process=True)}
    named = {name: Trials(each, folder / "cli" / name) for name, each in of_commands.items()}
    benches |= named
    # An ingest takes its seconds: it loads a model. The others share the rest.
    at_random({INGEST: named.pop(INGEST)}, count // 10, generator)
    at_random(named, count - count // 10, generator)


def row(name, tally):
    return {
        "operation": name,
        "at steps": tally.at_steps,
        "at random": tally.at_random,
        "finished first": tally.finished,
        "lost": tally.count("lost"),
        "partial": tally.count("partial"),
        "other": tally.count(*_OTHER),
        "after resume": tally.count(*_AFTER),
        "open ms": round(tally.slowest_open_s * 1000),
    }


def total(rows):
    sums = {column: sum(each[column] for each in rows) for column in COLUMNS[1:-1]}
    return {"operation": "all", **sums, "open ms": max(each["open ms"] for each in rows)}


def main():
    parser = harness.parser(__doc__, seed=1, json=False)
    parser.add_argument("--kills", type=int, default=1000, help="of processes in all, at named steps and at random")
    parser.add_argument("--commands", type=int, default=50, help="so many of them are processes of the command line")
    parser.add_argument(
        "--only", action="append", choices=OPERATIONS, help="this operation, and no command; repeatable"
    )
    parser.add_argument("--folder", type=Path, help="where the indexes are; a temporary folder")
    options = harness.parse(parser, kills=4, commands=0, only=["replace"])
    prepare()
    benches = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        try:
            kill_all(benches, Path(folder), options)
        except KeyboardInterrupt:
            print("interrupted; this is what was done", file=sys.stderr)
    rows = [row(name, bench.tally) for name, bench in benches.items()]
    faults = [(name, *fault) for name, bench in benches.items() for fault in bench.tally.row()["faults"]]
    if options.json:
        print(
            json.dumps({"seed": options.seed, "rows": rows, "all": total(rows), "faults": faults}, ensure_ascii=False)
        )
    else:
        print_table(COLUMNS, [*rows, total(rows)])
        print(*(": ".join(fault) for fault in faults), sep="\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
