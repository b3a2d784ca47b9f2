"""The options, rows, turns, clocks and memory of all benches, and their tiny form.

With --tiny a bench runs in seconds, on data made here, so that a test sees that it works.
"""

import argparse
import atexit
import gzip
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

_VARIABLE = "MVINDEX_BENCH_TINY"


def _made():
    """Return the folder of this tiny run, made by its first process and removed by it; None for other runs."""
    if "--tiny" in sys.argv and _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = tempfile.mkdtemp(prefix="mvindex-tiny-")
        atexit.register(shutil.rmtree, os.environ[_VARIABLE], ignore_errors=True)
    return Path(os.environ[_VARIABLE]) if _VARIABLE in os.environ else None


FOLDER = _made()
# Stand for folders: DATA of collections as --data takes them, OUT for results.
DATA, OUT = object(), object()
# Where collections are kept by default.
COLLECTIONS = Path("../shared/data")
# Passages of the repository.
SQUAD = str(Path(__file__).resolve().parent.parent / "examples/squad/passages.tsv")
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_ARTICLES, _PASSAGES = 45, 2


def parser(description, **defaults):
    """Return a parser with an option for each default; a type stands for an option that must be given."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if default is False:
            made.add_argument(option, action="store_true")
        elif isinstance(default, type):
            made.add_argument(option, type=default, required=True)
        elif isinstance(default, list):
            made.add_argument(option, type=type(default[0]), nargs="+", default=default)
        else:
            made.add_argument(option, type=type(default), default=default)
    return made


def parse(parser, **tiny):
    """Return the options of the command line; those given here are the defaults of --tiny, which needs no others."""
    parser.add_argument("--tiny", action="store_true", help="small and in seconds, on made data: whether it works")
    if "--tiny" in sys.argv:
        values = {name: _folder(value) for name, value in tiny.items()}
        for action in parser._actions:
            if action.dest in values:
                action.required = False
                if not action.option_strings:
                    action.nargs = "*" if action.nargs in ("*", "+") else "?"
        parser.set_defaults(**values)
    return parser.parse_args()


def _folder(value):
    if value is OUT:
        return Path(tempfile.mkdtemp(dir=FOLDER)) / "out"
    if value is DATA:
        if not (FOLDER / "data").exists():
            write_data(FOLDER / "data")
        return FOLDER / "data"
    return value


def as_pairs(row):
    return "  ".join(f"{name} {value}" for name, value in row.items())


def show(row, as_json, as_line=as_pairs):
    """Print a row: as JSON, or as a line of text."""
    print(json.dumps(row) if as_json else as_line(row), flush=True)


def print_table(columns, rows):
    """Print rows, mappings by column, as aligned columns: texts to the left, all else to the right."""
    widths = {column: max(len(column), *(len(str(row[column])) for row in rows)) for column in columns}
    is_text = {column: all(isinstance(row[column], str) for row in rows) for column in columns}

    def line(cells):
        aligned = (cell.ljust if is_text[column] else cell.rjust for column, cell in zip(columns, cells, strict=True))
        print("  ".join(align(widths[column]) for column, align in zip(columns, aligned, strict=True)))

    line(columns)
    for row in rows:
        line([str(row[column]) for column in columns])


def save_rows(rows, file):
    """Write rows to a file as JSON, in a folder that is made where it is missing; nothing for None."""
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def timed(call, clock=time.process_time):
    """Return the seconds that a call takes, by default of the processor, and its value."""
    begin = clock()
    value = call()
    return clock() - begin, value


def alternate(calls, rounds):
    """Return CPU seconds (rounds,) of each call by name, after one untimed round; the order alternates."""
    found = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name in list(calls) if number % 2 else reversed(calls):
            seconds, _ = timed(calls[name])
            if number:
                found[name].append(seconds)
    return found


def ratios(above, below):
    """Return the median of the rounds' ratios, and the smallest and the largest of them."""
    each = sorted(one / other for one, other in zip(above, below, strict=True))
    return {"ratio": statistics.median(each), "range": [each[0], each[-1]]}


def ratio_text(row):
    low, high = row["range"]
    return f"ratio {row['ratio']:.3f} ({low:.3f}-{high:.3f})"


def memory_bytes(name="RssAnon", pid="self"):
    """Return an entry of the memory of a process, in bytes: RssAnon is private, VmHWM the most that was resident."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(dict(line.split(":", 1) for line in lines)[name].split()[0]) << 10


class Peak:
    """The most bytes while they are measured, looked at five times a second: of this process' private memory."""

    def __init__(self, look=memory_bytes):
        """look: returns the bytes of something else."""
        self._look = look

    def __enter__(self):
        self.bytes, self._done = self._look(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._done.set()
        self._thread.join()
        self.bytes = max(self.bytes, self._look())

    def _watch(self):
        while not self._done.wait(0.2):
            self.bytes = max(self.bytes, self._look())


def write_data(folder):
    """Write collections as the data folder has them: squad/ with questions, and corpora of other formats."""
    rng = random.Random(0)
    nouns = ["".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(3)) for _ in range(400)]
    passages, questions = [], []
    for article in range(_ARTICLES):
        title = f"{nouns[article]} {nouns[article + 1]}"
        for _ in range(_PASSAGES):
            sentences = [" ".join(rng.sample(nouns, 6)).capitalize() for _ in range(2)]
            passages.append((str(len(passages) + 1), ". ".join(sentences) + ".", title))
            words = rng.choice(sentences).split()
            question = {"id": f"q{len(questions)}", "question": f"Where is the {words[1]} of {words[2]}?"}
            questions.append({**question, "answers": [words[0]], "passage_id": passages[-1][0], "title": title})
    squad = folder / "squad"
    squad.mkdir(parents=True)
    table = "".join("\t".join(row) + "\n" for row in [("id", "text", "title"), *passages])
    (squad / "passages.tsv").write_text(table)
    for name, part in (("train", questions[:50]), ("test", questions[50:])):
        (squad / f"questions.{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    _write_lists(folder / "limit_small", nouns, rng)
    (folder / "wiki_sample").mkdir()
    (folder / "pubmedqa").mkdir()
    import zstandard

    (folder / "wiki_sample/passages.tsv.zst").write_bytes(zstandard.compress(table.encode()))
    records = ({"_id": row[0], "text": row[1], "title": row[2]} for row in passages)
    with gzip.open(folder / "pubmedqa/corpus.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def _write_lists(folder, nouns, rng):
    """Write documents of one sentence that lists what a person likes, and a question for each of two things."""
    folder.mkdir()
    people = {f"{nouns[place].title()} {nouns[place + 1].title()}": rng.sample(nouns, 12) for place in range(6)}
    corpus = [{"_id": name, "title": "", "text": f"{name} likes {', '.join(liked)}."} for name, liked in people.items()]
    queries = [{"_id": f"q{liked[2]}", "text": f"Who likes {liked[2]}?"} for liked in people.values()]
    qrels = [{"query-id": f"q{liked[2]}", "corpus-id": name, "score": 1} for name, liked in people.items()]
    for name, rows in (("corpus", corpus), ("queries", queries), ("qrels", qrels)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
