"""kill -9 by the thousand: at every named step of every operation, then at random moments of them and of real commands.

    nice python bench/kills.py --kills 1000 --seed 1 [--commands 50] [--only replace] [--json]

Each kill is followed by a look from another process: what was acknowledged is there, no batch or document in part, and
searches give what brute force gives over what is there. Then the operation is run again (now and then killed up to
three times in a row first): ordinals, texts, spans and views must be byte for byte those of a run that nobody stopped,
and no file may be left over. Prints a row an operation, and each fault with the moment that shows it; exits 1 if there
was any. The short form is tests/durability/test_kills.py.
"""

import argparse
import importlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "crash"))
# First: it says how many threads libraries use, before they are loaded.
runner = importlib.import_module("tests.durability.kills.run")
commands = importlib.import_module("tests.durability.kills.commands")
trials = importlib.import_module("tests.durability.kills.trials")
OPERATIONS = importlib.import_module("tests.durability.table").OPERATIONS

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
# After it was run again: an error, other documents, files left over. Other: what a search, a reader or an open met.
_AFTER, _OTHER = ("stuck", "different", "litter"), ("unreadable", "search", "reader", "slow", "damaged")


def at_steps(benches, report):
    for name, bench in benches.items():
        runner.kill_at_steps(bench, len(bench.steps), random.Random(0))
        report(name, bench)


def at_random(benches, count, generator):
    """Nothing; so many more processes were killed, of one operation after the other."""
    names = list(benches)
    turn, done = 0, 0
    while done < count:
        bench = benches[names[turn % len(names)]]
        before = bench.tally.at_random
        runner.kill_at_random(bench, min(3, count - done), generator)
        done += bench.tally.at_random - before
        turn += 1


def kill_all(benches, folder, options):
    """Nothing; as many processes were killed as asked for. benches: filled with what became of each operation."""
    generator, started = random.Random(options.seed), time.monotonic()

    def note(text):
        print(f"{time.monotonic() - started:6.0f} s: {text}", file=sys.stderr, flush=True)

    chosen = options.only or list(OPERATIONS)
    for name in chosen:
        benches[name] = trials.Bench(OPERATIONS[name], folder / "api" / name)
    at_steps(benches, lambda name, bench: note(f"{name}: {bench.tally.at_steps} steps"))
    if options.commands and not options.only:
        kill_commands(benches, folder, (options.commands, generator))
        note(f"{options.commands} commands")
    done = sum(bench.tally.kills for bench in benches.values())
    at_random({name: benches[name] for name in chosen}, options.kills - done, generator)
    note("random moments")


def kill_commands(benches, folder, chosen):
    """Nothing; so many processes of the command line were killed, and benches hold theirs. chosen: count, generator."""
    count, generator = chosen
    (folder / "made").mkdir()
    of_commands = commands.command_operations(folder / "made")
    named = {name: trials.Bench(each, folder / "cli" / name) for name, each in of_commands.items()}
    benches |= named
    # An ingest takes its seconds: it loads a model. The others share the rest.
    at_random({"mvindex ingest": named.pop("mvindex ingest")}, count // 10, generator)
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


def print_table(rows):
    widths = {column: max(len(column), *(len(str(each[column])) for each in rows)) for column in COLUMNS}
    print("  ".join(column.rjust(widths[column]) for column in COLUMNS))
    for each in rows:
        print("  ".join(str(each[column]).rjust(widths[column]) for column in COLUMNS))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="of processes in all, at named steps and at random")
    parser.add_argument("--commands", type=int, default=50, help="so many of them are processes of the command line")
    parser.add_argument(
        "--only", action="append", choices=OPERATIONS, help="this operation, and no command; repeatable"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the indexes are; a temporary folder")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runner.prepare()
    benches = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        try:
            kill_all(benches, Path(folder), options)
        except KeyboardInterrupt:
            print("interrupted; this is what was done", file=sys.stderr)
    rows = [row(name, bench.tally) for name, bench in benches.items()]
    faults = [(name, *fault) for name, bench in benches.items() for fault in runner.row_of(bench.tally)["faults"]]
    if options.json:
        print(
            json.dumps({"seed": options.seed, "rows": rows, "all": total(rows), "faults": faults}, ensure_ascii=False)
        )
    else:
        print_table([*rows, total(rows)])
        print(*(": ".join(fault) for fault in faults), sep="\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
