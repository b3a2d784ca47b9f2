"""Count what a query and an added document pass through: calls of functions of mvindex, files, and stays in a file.

    python bench/walk.py --json
    python bench/walk.py --calls query

A stay ends where the next call is of another file. The query is a text, hybrid and warm, over 50 documents; its door is
what is called before anything is encoded. Counts are exact and the same on every machine.
--calls prints a walk instead, a stay a line.
"""

import json
import sys
import tempfile
from itertools import groupby
from pathlib import Path

import harness
import numpy as np

import mvindex
from mvindex import CallableEncoder, Document

ROOT = str(Path(mvindex.__file__).parent)
BUDGETS = {"query": {"calls": 250, "files": 22, "stays": 90}, "door": {"calls": 15}, "add": {"stays": 90}}
_ENCODES = "encode_queries"


def encode(texts):
    """Return vectors of a few counts: what is encoded does not matter here."""
    return np.array([[len(text), text.count("a") + 1, text.count("e") + 1, 1] for text in texts], dtype=np.float32)


def walk(function):
    """Return the calls of a function in order, each as a file and a name."""
    calls = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def count(calls):
    """Return the number of calls, of files, and of stays."""
    files = [file for file, _ in calls]
    stays = sum(file != after for file, after in zip(files, [*files[1:], None], strict=True))
    return {"calls": len(calls), "files": len(set(files)), "stays": stays}


def walks():
    """Return the calls of a query, of its door, and of an added document."""
    with tempfile.TemporaryDirectory() as folder:
        encoder = CallableEncoder(encode, name="counts")
        with mvindex.create(Path(folder) / "walk.mvx", encoder=encoder, lexical="english") as index:
            index.add([Document(str(number), f"text number {number} about oil and water") for number in range(50)])
            for _ in range(3):
                index.search("about oil", top_k=5)
            query = walk(lambda: index.search("about oil", top_k=5))
            added = walk(lambda: index.add([Document("new", "fresh text")]))
    door = query[: next(number for number, (_, name) in enumerate(query) if name == _ENCODES)]
    return {"query": query, "door": door, "add": added}


def main():
    """Print the counts beside their budgets."""
    parser = harness.parser(__doc__, json=False)
    parser.add_argument("--calls", choices=("query", "door", "add"), help="print this walk in order, a stay a line")
    options = harness.parse(parser)
    walked = walks()
    if options.calls:
        for file, calls in groupby(walked[options.calls], key=lambda call: call[0]):
            print(f"{Path(file).relative_to(ROOT)}: {' '.join(name for _, name in calls)}")
        return
    found = {name: count(calls) for name, calls in walked.items()}
    if options.json:
        print(json.dumps(found))
        return
    for name, own in found.items():
        shown = ", ".join(
            f"{number} {what}" + (f" (at most {BUDGETS[name][what]})" if what in BUDGETS[name] else "")
            for what, number in own.items()
        )
        print(f"{name}: {shown}")


if __name__ == "__main__":
    main()
