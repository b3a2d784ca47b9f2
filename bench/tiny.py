"""The tiny form of a bench: with --tiny it runs in seconds, on data made here, so that a test sees that it works."""

import atexit
import gzip
import json
import os
import random
import shutil
import sys
import tempfile
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
# Passages of the repository.
SQUAD = str(Path(__file__).resolve().parent.parent / "examples/squad/passages.tsv")
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_ARTICLES, _PASSAGES = 45, 2


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
