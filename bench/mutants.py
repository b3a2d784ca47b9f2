"""Change the source in one place, as a slip would, and see whether a test fails: for mutants drawn by a seed.

    python bench/mutants.py --out DIR [--rooms search store ingest] [--count 200] [--seed 0] [--jobs 2] [--json]
        [--checkout DIR]

A mutant swaps or negates a comparison, + and -, `and` and `or`, adds or takes 1, turns a truth value, drops a `not`,
returns None, or forces a condition. Texts, messages, types, `raise` and `assert` stay. All happens in copies of the
checkout, in DIR. First --tests run under coverage, which keeps the lines that each test runs. A mutant is tried on the
tests that run its line and then on the others of their files, the fastest files first, up to the first that fails;
--seconds limits them, in CPU seconds under coverage, and `left_out` counts those that were not run.

Where tests take more than --limit seconds, the one that ran last is repeated with and without the change: the mutant is
caught where it ends without the change only, else undecided. In the end each test that caught a mutant runs without a
change; the mutants of those that fail are undecided. DIR keeps the coverage and a row for each mutant: a second run
goes on from them, and with more --seconds tries survivors again.

Prints the rows, those of mutants that were not caught once more, and a count of each result: `uncovered` are those on
lines that no test runs. --checkout is another version, in its own environment. Needs the package coverage.
"""

import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import time
from bisect import bisect
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import accumulate
from pathlib import Path

import harness
from mutants_parts.draw import mutants_of

BENCH = Path(__file__).resolve().parent
TESTS = [*(f"tests/unit/{room}" for room in ("store", "search", "ingest", "index")), "tests/contract"]
LEFT_OUT = (".git", ".venv", "build", "dist", "site", "out", ".hypothesis", ".pytest_cache", ".mypy_cache")
PLUGIN = "mutants_parts.selected"


class Copy:
    """A copy of the checkout, in which one mutant at a time lives."""

    def __init__(self, folder, checkout):
        self._root, self._notes = folder / "checkout", folder / "notes"
        # A run that was killed has left its mutant.
        shutil.rmtree(self._root, ignore_errors=True)
        shutil.copytree(checkout, self._root, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        self._notes.mkdir(exist_ok=True)
        self._writes = 0

    def cover(self, tests, out):
        """Keep which test runs which line, and what it takes, in a folder."""
        config = self._notes / "coverage.ini"
        config.write_text("[run]\nsource_pkgs = mvindex\nrelative_files = true\n")
        command = ["coverage", "run", f"--rcfile={config}", f"--data-file={out / 'coverage'}", "-m", "pytest"]
        code = self._run([*command, *tests], None)
        if code not in (0, 1):
            sys.exit(f"the tests ended with {code} under coverage; see {self._notes / 'log'}")
        shutil.copy(self._notes / "times.json", out)

    def try_on(self, mutant, tests, limit):
        """Return caught, survived or undecided, and the test that ran last."""
        file = self._root / mutant.file
        source, stamp = file.read_bytes(), file.stat()
        self._writes += 1
        file.write_bytes(mutant.apply(source))
        # Compiled files are known by size and time: no two mutants have the same.
        os.utime(file, (stamp.st_atime, int(stamp.st_mtime) + self._writes))
        try:
            code = self.run(tests, limit)
            test = (self._notes / "running").read_text()
            hangs = code is None and self.run([test], limit) is None
        finally:
            file.write_bytes(source)
            os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        if code is None:
            return ("caught" if hangs and self.run([test], limit) == 0 else "undecided"), test
        return ("caught" if code else "survived"), test

    def run(self, tests, limit):
        """Return the exit status of pytest on tests, None where it takes longer."""
        (self._notes / "selected.json").write_text(json.dumps(tests))
        (self._notes / "running").write_text("")
        files = dict.fromkeys(map(_file, tests))
        return self._run(["pytest", "-x", *files], limit)

    def _run(self, command, limit):
        path = os.pathsep.join([*(str(self._root / part) for part in ("", "connectors", "train")), str(BENCH)])
        environment = os.environ | {"PYTHONPATH": path, "MVINDEX_MUTANTS": str(self._notes)}
        # What a mutant does not change is compiled once.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        options = ["-q", "-p", PLUGIN, "-p", "no:cacheprovider", f"--basetemp={self._notes / 'temporary'}"]
        with (self._notes / "log").open("w") as log:
            command = [sys.executable, "-m", *command, *options]
            process = subprocess.Popen(
                command, cwd=self._root, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                return process.wait(limit)
            except subprocess.TimeoutExpired:
                return None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def draw(checkout, rooms, count, seed):
    """Return mutants of the files of rooms of a checkout, drawn without putting back; fewer where there are fewer."""
    files = sorted(file for room in rooms for file in (checkout / "mvindex" / room).rglob("*.py"))
    names = [file.relative_to(checkout).as_posix() for file in files]
    found = {mutant.name: mutant for name in names for mutant in mutants_of(name, (checkout / name).read_bytes())}
    every = list(found.values())
    return random.Random(seed).sample(every, min(count, len(every)))


class Selection:
    """The tests that run a line, and the CPU seconds of each."""

    def __init__(self, folder):
        from coverage import CoverageData

        self._times = json.loads((folder / "times.json").read_text())
        self._data = CoverageData(str(folder / "coverage"))
        self._data.read()

    def of(self, mutant, seconds):
        """Return tests of a mutant's line, files and tests by their time, and how many are over the seconds."""
        covered = self._data.contexts_by_lineno(mutant.file)
        # A line that is run at import alone has the tests of its statement, a constant of a module those of its file.
        for lines in ([mutant.line], mutant.lines, covered):
            tests = {test for line in lines for test in covered.get(line, ())} & self._times.keys()
            if tests or not any(covered.get(line) for line in mutant.lines):
                break
        files = Counter()
        for test in tests:
            files[_file(test)] += self._times[test]
        # What a fixture of a file runs is noted for the first test that asks for it: the others come behind.
        others = [test for test in self._times if _file(test) in files and test not in tests]
        order = [
            *sorted(tests, key=lambda test: (files[_file(test)], _file(test), self._times[test])),
            *sorted(others, key=lambda test: (files[_file(test)], _file(test), self._times[test])),
        ]
        sums = list(accumulate(map(self._times.get, order)))
        kept = max(1, bisect(sums, seconds))
        return order[:kept], len(order[kept:])


def _file(test):
    return test.split("::")[0]


def try_all(mutants, options, copies, selection, keep):
    """Try mutants, as many at a time as there are copies."""
    free = queue.SimpleQueue()
    for made in copies:
        free.put(made)

    def one(mutant):
        tests, left_out = selection.of(mutant, options.seconds)
        row = {"mutant": mutant.name, "tests": len(tests), "left_out": left_out, "up_to": options.seconds}
        if not tests:
            return row | {"result": "uncovered", "test": "", "seconds": 0.0}
        copy, begin = free.get(), time.monotonic()
        try:
            result, test = copy.try_on(mutant, tests, options.limit)
        finally:
            free.put(copy)
        return row | {"result": result, "test": test, "seconds": round(time.monotonic() - begin, 1)}

    with ThreadPoolExecutor(len(copies)) as pool:
        for done in as_completed([pool.submit(one, mutant) for mutant in mutants]):
            keep(done.result())


def main():
    parser = harness.parser(
        __doc__,
        rooms=["search", "store", "ingest"],
        tests=TESTS,
        count=200,
        seed=0,
        jobs=2,
        seconds=120,
        limit=900,
        out=Path,
        checkout=BENCH.parent,
        json=False,
    )
    options = harness.parse(
        parser,
        out=harness.OUT,
        rooms=["store/lexical"],
        tests=["tests/unit/store/lexical/test_tokenizer.py"],
        count=2,
        seconds=5,
        jobs=1,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    copies = [Copy(_made(options.out / f"copy{number}"), options.checkout) for number in range(options.jobs)]
    if not (options.out / "times.json").exists():
        copies[0].cover(options.tests, options.out)
    log = options.out / "mutants.jsonl"
    rows = {row["mutant"]: row for row in map(json.loads, log.read_text().splitlines())} if log.exists() else {}

    def keep(row):
        rows[row["mutant"]] = row
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        harness.show(row, options.json)

    mutants = draw(options.checkout, options.rooms, options.count, options.seed)
    missing = [mutant for mutant in mutants if _is_open(rows.get(mutant.name), options.seconds)]
    try_all(missing, options, copies, Selection(options.out), keep)
    drawn = [rows[mutant.name] for mutant in mutants]
    failing = _fail_unchanged(copies[0], {row["test"] for row in drawn if row["result"] == "caught"}, options.limit)
    results = [row | ({"result": "undecided"} if row["test"] in failing else {}) for row in drawn]
    for row in results:
        if row["result"] in ("survived", "uncovered", "undecided"):
            harness.show(row, options.json)
    harness.show({"mutants": len(results), **Counter(row["result"] for row in results)}, options.json)


def _is_open(row, seconds):
    """Return whether a mutant has no row, or survived a part of its tests that is now larger."""
    return row is None or (row["result"] == "survived" and row["left_out"] > 0 and row["up_to"] < seconds)


def _fail_unchanged(copy, tests, limit):
    """Return which tests fail without a change; each is run alone where not all pass."""
    tests = sorted(tests - {""})
    if not tests or copy.run(tests, None) == 0:
        return set()
    return {test for test in tests if copy.run([test], limit) != 0}


def _made(folder):
    folder.mkdir(exist_ok=True)
    return folder


if __name__ == "__main__":
    main()
