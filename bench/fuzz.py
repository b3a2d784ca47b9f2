"""Fuzz everything that reads files or filters: no input may crash, hang, fill the memory or give a wrong answer.

    python bench/fuzz.py [--target NAME] [--inputs 1000000] [--seconds S] [--engine atheris] [--seed N] [--json]

Each target (bench/fuzz_parts) runs in a process of its own, its inputs a share of --inputs. Engines: `atheris`
(libFuzzer, guided by the coverage of mvindex' code; pip install atheris), `random` (a seeded mutator over valid inputs:
bits, tokens, splices, truncations, repeats, absurd numbers) and `hypothesis`. Without --engine atheris where it is
installed, else random. Inputs that led to a fault, and the slowest, are kept in --out; --replay FILE runs one again.
  refused   with an error of mvindex' own, of the kinds that the target names
  crash     any other error, or the death of the process
  wrong     an answer that differs from a plain second reading of the same bytes
  hang      an input that took longer than its target allows (5 s and more)
  memory    an input that took more than its target allows: a constant and so much per byte of it; the process has an
            address space limit beside it. Peaks below 16 MiB are not resolved
Linux only. Exits 1 if there was any fault.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
FAULTS = ("crash", "wrong", "hang", "memory")
STUCK_S = 120


def run_one(options) -> None:
    """Run one target in this process and write its report."""
    with _instrumented(options.engine):
        from fuzz_parts import engines, targets, watching
        from fuzz_parts.target import scratch_folder

        stack = contextlib.ExitStack()
        target = targets.open_target(options.one, stack.enter_context(scratch_folder()))
        with contextlib.suppress(*target.refusals):
            target.check(target.seeds()[0])  # what is loaded at first use is no input's memory
    watch = watching.Watch(target, options.out, watching.Journal(options.journal), options.report)
    if options.replay:
        print(watch.run(options.replay.read_bytes()), json.dumps(watch.report(), indent=1).replace("\\n", "\n"))
        return
    watching.limit_memory()
    end_s = time.monotonic() + options.seconds

    def goes_on():
        if watch.counts["inputs"] % 5000 == 0:
            watch.save_report()
        return watch.counts["inputs"] < options.inputs and time.monotonic() < end_s

    def finish():
        watch.save_report()
        options.report.with_suffix(".done").touch()
        stack.close()

    if options.engine == "atheris":
        corpus = options.out / "corpus" / target.name
        engines.run_atheris(watch, options.seed, goes_on, corpus, finish)
    {"random": engines.run_random, "hypothesis": engines.run_hypothesis}[options.engine](watch, options.seed, goes_on)
    finish()


@contextlib.contextmanager
def _instrumented(engine):
    if engine != "atheris":
        yield
        return
    import atheris

    with atheris.instrument_imports(include=["mvindex"]):
        yield


def run_target(name, inputs, seconds, options, folder):
    """Run a target in its own processes and return its report; one that dies is a crash, and another seed follows."""
    from fuzz_parts import reports
    from fuzz_parts.watching import Journal, save_input

    total, begin, seed = reports.empty(name, options.engine), time.monotonic(), options.seed
    while total["inputs"] < inputs and total["deaths"] < 20 and (left := begin + seconds - time.monotonic()) > 0:
        place = folder / f"{name}-{seed}"
        place.mkdir()
        journal = Journal(place / "journal")
        command = [sys.executable, __file__, "--one", name, "--inputs", inputs - total["inputs"], "--seconds", left]
        command += ["--seed", seed, "--engine", options.engine, "--out", options.out, "--report", place / "report"]
        with (place / "log").open("wb") as log:
            child = subprocess.Popen([*map(str, command), "--journal", str(place / "journal")], stdout=log, stderr=log)
            is_stuck = _wait(child, journal)
        reports.add(total, place / "report", journal.read()[0])
        if not (place / "report.done").exists():
            if not journal.read()[0]:
                sys.exit((place / "log").read_text(errors="replace"))
            what = "stuck, killed" if is_stuck else f"the process died ({child.returncode})"
            last = (place / "log").read_text(errors="replace")[-2000:]
            saved = save_input(options.out, name, "hang" if is_stuck else "crash", journal.read()[1])
            reports.add_death(total, what, last, saved, is_stuck)
        seed += 1000
    total["seconds"] = round(time.monotonic() - begin, 1)
    return total


def _wait(child, journal):
    """Wait for the child; return whether it stayed at one input and was killed."""
    last, since = -1, time.monotonic()
    while child.poll() is None:
        time.sleep(0.2)
        number = journal.read()[0]
        if number != last:
            last, since = number, time.monotonic()
        elif time.monotonic() - since > STUCK_S:
            child.kill()
            child.wait()
            return True
    return False


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        run_one(options)
        return
    from fuzz_parts import reports, targets

    chosen = targets.chosen(options.target)
    if options.engine is None:
        options.engine = "atheris" if importlib.util.find_spec("atheris") else "random"
        if options.engine != "atheris":
            print("NOT RUN: atheris (not installed); the seeded mutator takes its place", file=sys.stderr)
    whole = sum(chosen.values())
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, weight in chosen.items():
            share = weight / whole
            found.append(
                run_target(name, int(options.inputs * share) + 1, options.seconds * share, options, Path(folder))
            )
            if not options.json:
                print(reports.as_line(found[-1]), flush=True)
    print(json.dumps(found, indent=1) if options.json else reports.summary(found))
    sys.exit(1 if any(row[kind] for row in found for kind in FAULTS) else 0)


def _options():
    parser = harness.parser(__doc__, seed=0, json=False)
    parser.add_argument("--target", default="all", help="a name, the beginning of several, or all")
    parser.add_argument("--inputs", type=int, default=100_000, help="of all targets together")
    parser.add_argument("--seconds", type=float, default=3600, help="at most, of all targets together")
    parser.add_argument("--engine", choices=["atheris", "random", "hypothesis"])
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="where inputs are kept")
    parser.add_argument("--replay", type=Path, help="an input to run once, with --one TARGET")
    parser.add_argument("--one", metavar="TARGET", help="run it in this process")
    parser.add_argument("--journal", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    return harness.parse(parser, inputs=20, seconds=10, target="qrels", engine="random", out=harness.OUT)


if __name__ == "__main__":
    main()
