"""LangChain's stores over mvindex, Chroma and LanceDB, with one embedding function: time to add, open and search."""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import islice
from pathlib import Path

import numpy as np

from mvindex.corpus import CorpusOptions, read_documents
from mvindex.measure.questions import read_questions

ROOT = Path(__file__).resolve().parents[2]
SQUAD = ROOT / "examples/squad"
# side -> what has to be installed for it.
SIDES = {
    "mvindex": "mvindex",
    "mvindex, dense": "mvindex",
    "chroma": "langchain_chroma",
    "lancedb": "lancedb",
}
SEARCHES = (
    "first query after add",
    "first filter after it",
    "open + first query",
    "open + first filter",
    "next 50 queries",
)
ROWS = ("import", "add", *SEARCHES, "query", "filter")


def available_sides():
    return [side for side, module in SIDES.items() if importlib.util.find_spec(module) is not None]


def job_of(options):
    """Return the texts, their sources and the queries of all sides."""
    documents = list(islice(read_documents(str(SQUAD / "passages.tsv"), CorpusOptions()), options.documents))
    questions = [one.text for one in read_questions([str(SQUAD / "questions.dev.jsonl")])][: options.queries]
    sources = [f"file {number // 40}" for number in range(len(documents))]
    return {
        "texts": [document.text for document in documents],
        "sources_of_texts": sources,
        "queries": questions,
        "sources": [sources[(7 * number) % len(sources)] for number in range(len(questions))],
        "embedding": options.embedding,
        "settle_s": 0 if options.tiny else 5,
    }


def run_phase(side, phase, folder, job):
    """Return the milliseconds of one process."""
    command = [sys.executable, str(Path(__file__).with_name("langchain_store.py"))]
    done = subprocess.run(
        command,
        input=json.dumps(job | {"side": side, "phase": phase, "folder": str(folder)}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{side}, {phase}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure_peers(options):
    """Return for each side the median milliseconds of each row; sides take turns within a repeat."""
    job, found = job_of(options), defaultdict(lambda: defaultdict(list))
    for _ in range(options.repeats):
        for side in available_sides():
            with tempfile.TemporaryDirectory() as folder:
                added = run_phase(side, "add", folder, job)
                by_query, by_filter = run_phase(side, "query", folder, job), run_phase(side, "filter", folder, job)
            rows = found[side]
            rows["import"] += added["import"] + by_query["import"] + by_filter["import"]
            rows["add"] += [added["open"][0] + added["add"][0]]
            rows["first query after add"] += added["first query"]
            rows["first filter after it"] += added["first filter"]
            rows["open + first query"] += [by_query["open"][0] + by_query["first query"][0]]
            rows["open + first filter"] += [by_filter["open"][0] + by_filter["first filter"][0]]
            rows["next 50 queries"] += by_query["next 50 queries"]
            rows["query"] += by_query["query"] + by_filter["query"]
            rows["filter"] += by_query["filter"] + by_filter["filter"]
    return {side: {row: round(float(np.median(rows[row])), 2) for row in ROWS} for side, rows in found.items()}


def print_peers(sides):
    print(f"{'median ms':24}" + "".join(f"{side:>26}" for side in sides))
    for row in ROWS:
        print(f"{row:24}" + "".join(f"{rows[row]:26.1f}" for rows in sides.values()))
