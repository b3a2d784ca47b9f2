"""Reproduce tables of MVR, CAMVR and DRPQ at small scale, with a verdict on each claim (docs/explanation/studies.md).

    python bench/studies.py --data DIR --out DIR [--only STUDY[/ROW[/FORM]],...] [--seed N] [--size small|full]
    python bench/studies.py --list
    python bench/studies.py --report

DIR of --data contains squad/ (bench/squad_splits.py); checkpoints and measures are kept in --out, so that rows of
equal settings are trained once. A row in the results file is skipped. Small, the default, is for CPUs: 12 steps of 8
passages with up to 4 questions, a LoRA on the packaged MiniLM, the 662 dev questions over the 148 passages of the dev
articles. Full uses the settings of the presets, the whole train split with BM25's negatives, and the 3,420 test
questions over all passages; it needs a GPU. --report writes the tables of docs/explanation/studies.md
from the results file and trains nothing.
"""

from pathlib import Path

import harness
from studies_parts.report import write_report
from studies_parts.rows import all_rows
from studies_parts.settings import DEFAULT_STEPS, EPOCHS, Plan, Size

DOCS = Path(__file__).parents[1] / "docs"


def main():
    options = parse()
    rows = [row for row in all_rows() if not options.only or any(map(row.is_named, options.only.split(",")))]
    if not rows:
        raise SystemExit(f"--only: expected a row of --list, got {options.only}")
    if options.list:
        print(*(row.key for row in rows), sep="\n")
        return
    if not options.report:
        run(options, rows)
    if options.report or options.results == DOCS / "studies/results.jsonl":
        write_report(options.results, DOCS / "explanation/studies.md", DOCS / "studies/rows.tsv")


def parse():
    parser = harness.parser(__doc__, results=DOCS / "studies/results.jsonl", seed=0, list=False, report=False)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help=f"of small runs, a multiple of {EPOCHS}")
    parser.add_argument("--size", type=Size, default=Size.SMALL, help="small or full")
    options = harness.parse(parser, list=True)
    if not (options.list or options.report) and not (options.data and options.out):
        parser.error("expected --data and --out")
    if options.steps < EPOCHS or options.steps % EPOCHS:
        parser.error(f"--steps: expected a multiple of {EPOCHS}, got {options.steps}")
    return options


def run(options, rows):
    from studies_parts.running import Runner, run_rows  # only here: it imports torch

    options.out.mkdir(parents=True, exist_ok=True)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    plan = Plan(size=options.size, steps=options.steps, seed=options.seed)
    run_rows(rows, Runner(options.data, options.out, plan), plan, options.results)


if __name__ == "__main__":
    main()
