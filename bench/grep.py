"""Measure `mvindex grep` on sources and docs of installed packages: the first time, unchanged, and after an edit.

    python bench/grep.py [--files 1000] [--runs 5] [--budget SECONDS] [--json]
    python bench/grep.py --encoding [--files 1000] [--json]
    python bench/grep.py --partly [--json]
    python bench/grep.py --tiny --json

The files are drawn with a fixed seed from the .py, .md, .rst and .txt files of at least 500 bytes that this Python
imports packages from, with their folders. Each run is a process of its own, `mvindex grep WORDS FOLDER`, with its own
cache, and numpy's threads unless OMP_NUM_THREADS says otherwise: wall and processor seconds of the whole process, user
and system. `words` is the first time with --mode lexical, which encodes nothing; `first` goes on from there, so that
the first time without it is their sum; `unchanged` are medians of --runs; `edited` follows a change of one file.
`by_meaning` of the `passages` have views. `load` is that of the machine before a run, its cores being `cores`.

--encoding measures passages a processor second of the encoder, for 192 passages of the same files: with up to 8 views,
with one view, and with 8 views of their first 40 words. Each is measured twice, in turn; the row has both.

--partly measures the ranking while only a part of the passages has views: each of the 2,067 sample passages is a file,
and 400 questions are asked after each of a few budgets. `grep`, `lexical` and `hybrid`, which is the search of an index
as it is: percent of questions whose passage is first, and among the first 10.
"""

import csv
import dataclasses
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

import mvindex
from mvindex.encoder import load_encoder
from mvindex.io.hidden import HiddenIndex, RefreshHooks, search_hidden
from mvindex.search.fusion import Mode

ENDINGS = {".py", ".md", ".rst", ".txt"}
LEAST_BYTES = 500
QUERIES = ["retry after a timeout", "parse command line arguments", "how are cookies stored"]
SETTLED_S = 2.5
ENCODED, FIRST_WORDS = 192, 40
SQUAD = Path(__file__).parents[1] / "examples" / "squad"
ASKED, BUDGETS_S = 400, (0, 5, 10, 15, 1000)


def copy_files(folder, count):
    """Copy so many files of installed packages into the folder; return their bytes."""
    roots = [Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    found = sorted(
        (file, root)
        for root in roots
        for file in root.rglob("*")
        if file.suffix in ENDINGS and file.is_file() and file.stat().st_size >= LEAST_BYTES
    )
    for file, root in random.Random(0).sample(found, count):
        copied = folder / file.relative_to(root)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(file.read_bytes())
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def grep(folder, query, *flags):
    """Return wall and processor seconds of a process that answers, the load before it, and what stderr says."""
    command = [sys.executable, "-m", "mvindex", "grep", query, str(folder), *flags]
    environment = {**os.environ, "MVINDEX_CACHE": str(folder.parent / "cache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    load, before, begin = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"wall_s": round(wall, 2), "processor_s": round(processor, 2), "load": round(load, 1)}, done.stderr


def measure(options, folder):
    """Yield a row for each kind of run."""
    size_bytes = copy_files(folder, options.files)
    time.sleep(SETTLED_S)  # what was written just now may change unseen, and is read again
    corpus = {"files": options.files, "mb": round(size_bytes / 1e6, 1), "cores": os.cpu_count()}
    yield corpus | {"run": "words"} | grep(folder, QUERIES[0], "--mode", "lexical")[0]
    budget = [] if options.budget is None else ["--budget", str(options.budget)]
    row, told = grep(folder, QUERIES[0], *budget)
    counts = re.search(r"([\d,]+) of ([\d,]+) passages", told)
    meaning = {} if counts is None else dict(zip(("by_meaning", "passages"), counts.groups(), strict=True))
    yield corpus | {"run": "first"} | row | meaning
    rows = [grep(folder, QUERIES[number % len(QUERIES)])[0] for number in range(options.runs)]
    yield corpus | {"run": "unchanged"} | {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    edited = max(folder.rglob("*.py"))
    edited.write_text("# retried once\n" + edited.read_text(encoding="utf-8", errors="replace"), encoding="utf-8")
    yield corpus | {"run": "edited"} | grep(folder, QUERIES[0])[0]


def measure_encoding(options, folder):
    """Yield a row for each way to encode passages."""
    copy_files(folder, options.files)
    documents = random.Random(1).sample(list(mvindex.read_files(folder)), 8 if options.tiny else ENCODED)
    short = [dataclasses.replace(one, text=" ".join(one.text.split()[:FIRST_WORDS])) for one in documents]
    views, single = load_encoder(), load_encoder(family="single")
    views.encode_documents(documents[:8])  # loads what the first call loads
    sides = {"views": (views, documents), "single": (single, documents), "first words": (views, short)}
    rates = {name: [] for name in sides}
    for _ in range(2):
        for name, (encoder, given) in sides.items():
            begin = time.process_time()
            encoder.encode_documents(given)
            rates[name].append(round(len(given) / (time.process_time() - begin), 1))
    for name, found in rates.items():
        yield {"side": name, "passages": len(documents), "passages_per_processor_s": found}


def measure_partly(options, folder):
    """Yield a row for each budget, every run going on where the one before ended."""
    os.environ["MVINDEX_CACHE"] = str(folder.parent / "cache")
    folder.mkdir()
    with (SQUAD / "passages.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            (folder / f"{row['id']}.txt").write_text(f"{row['title']}. {row['text']}", encoding="utf-8")
    questions = [json.loads(line) for line in (SQUAD / "questions.dev.jsonl").read_text(encoding="utf-8").splitlines()]
    questions = random.Random(0).sample(questions, ASKED)
    hidden, hooks = HiddenIndex(str(folder)), RefreshHooks(on_note=print, on_progress=lambda *_: None)
    for budget in BUDGETS_S:
        with hidden.open(hooks, with_views=True, budget_s=budget, encode_all=True) as index:
            count, bare = hidden.counts
            sides = {"grep": (Mode.HYBRID, bare > 0), "lexical": (Mode.LEXICAL, False), "hybrid": (Mode.HYBRID, False)}
            row = {"passages": count, "with_views": count - bare}
            for name, (mode, has_bare) in sides.items():
                found = [search_hidden(index, one["question"], 10, mode, None, has_bare=has_bare) for one in questions]
                ranks = [rank_of(f"{one['passage_id']}.txt", hits) for one, hits in zip(questions, found, strict=True)]
                row[name] = [round(100 * sum(rank < cut for rank in ranks) / ASKED, 1) for cut in (1, 10)]
            yield row


def rank_of(file, found):
    """Return the place of a file among the hits, from 0; 10 where it is not there."""
    return next((place for place, one in enumerate(found) if one.hit.metadata["file"] == file), 10)


def main():
    parser = harness.parser(__doc__, files=1000, runs=5, encoding=False, partly=False, json=False)
    parser.add_argument("--budget", type=float)
    options = harness.parse(parser, files=20, runs=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "files"
        chosen = measure_encoding if options.encoding else measure_partly if options.partly else measure
        for row in chosen(options, folder):
            harness.show(row, options.json)


if __name__ == "__main__":
    main()
