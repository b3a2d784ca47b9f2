"""The files that a page's blocks find in their folder: the project's own and a small collection."""

import json
import re
import shutil

from docs_pages import ROOT

from tests.helpers.cli import mvindex, ok, read_passages, write_tsv

LINKED = ("bench", "constraints.txt", "docs", "pyproject.toml", "schemas", "tests")
# Of the articles on oil and on the plague, whose questions lie in examples/squad.
FIRST, OTHER = range(1, 7), range(201, 207)


def make_material(folder):
    """Write into the folder the files that every page is given."""
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "examples", folder / "examples")
    rows = [shortened(row) for row in read_passages(OTHER[-1]) if int(row[0]) in {*FIRST, *OTHER}]
    for name in ("corpus.tsv", "examples/squad/passages.tsv"):
        write_tsv(folder / name, rows)
    questions = questions_on({row[0] for row in rows})
    for name in ("questions.jsonl", "examples/squad/questions.dev.jsonl"):
        write_lines(folder / name, map(json.dumps, questions))
    write_lines(folder / "train.jsonl", map(json.dumps, questions[:8]))
    write_lines(folder / "dev.jsonl", map(json.dumps, questions[:4]))
    write_lines(folder / "questions.txt", (one["question"] for one in questions))
    write_lines(folder / "queries.jsonl", (json.dumps({"id": one["id"], "text": one["question"]}) for one in questions))
    judged = ["\t".join((one["id"], one["passage_id"], "1")) for one in questions]
    qrels = ["query-id\tcorpus-id\tscore", *judged]
    write_lines(folder / "qrels.tsv", qrels)
    for name in ("topics", "abstracts"):
        make_judged_folder(folder / name, rows, questions, qrels)


def make_judged_folder(folder, rows, questions, qrels):
    """Write a BEIR folder of the passages and questions."""
    (folder / "qrels").mkdir(parents=True)
    write_lines(
        folder / "corpus.jsonl", (json.dumps({"_id": id, "text": text, "title": title}) for id, text, title in rows)
    )
    write_lines(
        folder / "queries.jsonl", (json.dumps({"_id": one["id"], "text": one["question"]}) for one in questions)
    )
    write_lines(folder / "qrels" / "dev.tsv", qrels)


def shortened(row):
    """The first two sentences of a passage: little to encode."""
    sentences = re.split(r"(?<=[.!?]) ", row[1])
    return [row[0], " ".join(sentences[:2]), row[2]]


def questions_on(ids):
    """Some sample questions on these passages, as many as a fusion is tuned by."""
    lines = (ROOT / "examples/squad/questions.dev.jsonl").read_text(encoding="utf-8").splitlines()
    return [one for one in map(json.loads, lines) if one["passage_id"] in ids][:24]


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def make_indexes(folder, indexes):
    """Ingest the folder's corpus into corpus.mvx in `indexes`."""
    ok(mvindex("ingest", "corpus.tsv", "--index", indexes / "corpus.mvx", cwd=folder))
