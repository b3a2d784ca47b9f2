"""Measure how often the right file, the right section and the right sentence come first on folders of documentation.

    python bench/docs.py --data DATA [--index DIR] [--mode hybrid] [--titles path] [--wrong] [--json]

DATA/docs_real holds one folder a collection and questions.jsonl: of each question its collection and its answers, each
a file and the beginning of a sentence, list item or example in it. Each folder is synced with defaults into an index of
its own. Of the first hit are judged: its file; its section, that the text holds an answer; and its citation, that it
holds an answer or is 20 characters of one and more. `cited` is the citation of the best hit whose section is right.
Markup (emphasis, backticks, roles, targets of links) is dropped on both sides. With --index the indexes are kept in
DIR: the next run encodes changed passages only. --titles says what titles of passages hold: the path of headings, the
last one, or nothing. --wrong lists each question whose section or citation is wrong. Seconds are those of the sync.
"""

import contextlib
import json
import re
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import harness

import mvindex
from mvindex.index.factory import index_exists

LEAST_CHARS, TOP_K = 20, 100
JUDGED = ("file", "section", "citation")
ROLE = re.compile(r":[a-z]+(?::[a-z]+)?:(?=`)")
TARGET = re.compile(r"\]\([^()\s]*\)|\s<[^<>\s]*>(?=`)")
MARKS = re.compile(r"[*`\[\]]")


def bare(text):
    """Return a text without markup, its blanks as one."""
    return " ".join(MARKS.sub("", TARGET.sub("", ROLE.sub("", text))).split())


def judge(hit, answers):
    """Return whether the file, the section and the citation of a hit are right."""
    file, text = hit.metadata.get("file", ""), bare(hit.text)
    cited = bare(hit.citation.text if hit.citation else "")
    own = [bare(answer["text"]) for answer in answers if answer["file"] == file]
    held = [answer for answer in own if answer in text]
    is_cited = any(answer in cited or (len(cited) >= LEAST_CHARS and cited in answer) for answer in held)
    return dict(zip(JUDGED, (bool(own), bool(held), is_cited), strict=True))


TITLES = {"path": None, "last": lambda title: title.split(" > ")[-1], "none": lambda title: ""}


def filled(folder, place, encoder, shortened=None):
    """Return the index of a folder, in step with it, and the seconds that this took; shortened: makes other titles."""
    index = mvindex.open(place) if index_exists(place) else mvindex.create(place, encoder=encoder)
    begun = time.perf_counter()
    if shortened is None:
        mvindex.sync_folder(index, folder)
    else:
        index.add(replace(each, title=shortened(each.title)) for each in mvindex.read_files(folder))
    return index, time.perf_counter() - begun


def rows_of(index, questions, mode):
    """Yield each question with its first hit's place, citation and judgement, and that of the best right hit."""
    results = index.search([question["question"] for question in questions], top_k=TOP_K, mode=mode)
    for question, result in zip(questions, results, strict=True):
        hit = result.hits[0]
        judged = (judge(each, question["answers"]) for each in result.hits)
        first = next(judged)
        right = first if first["section"] else next((each for each in judged if each["section"]), first)
        found = {"question": question["question"], "id": hit.id, "text": hit.citation and hit.citation.text}
        yield {**found, **first, "cited": right["citation"]}


def questions_in(data):
    """Return the questions of each collection."""
    questions = defaultdict(list)
    for line in (data / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        questions[question["collection"]].append(question)
    return questions


def made_data():
    """Return a folder of one collection with one question, for --tiny."""
    data = Path(tempfile.mkdtemp(dir=harness.FOLDER))
    (data / "docs_real/oil").mkdir(parents=True)
    (data / "docs_real/oil/crisis.md").write_text("# Crisis\n\nIt began in October 1973. It ended in March 1974.\n")
    answers = [{"file": "crisis.md", "text": "It ended in `March`"}]
    question = {"collection": "oil", "question": "when did it end?", "answers": answers}
    (data / "docs_real/questions.jsonl").write_text(json.dumps(question) + "\n")
    return data


def main():
    parser = harness.parser(__doc__, data=Path, encoder="minilm-views", mode="hybrid", json=False)
    parser.add_argument("--index", type=Path, help="keep the indexes in this folder")
    parser.add_argument("--titles", choices=TITLES, default="path", help="what titles of passages hold (path)")
    parser.add_argument("--wrong", action="store_true", help="list the questions whose section or citation is wrong")
    options = harness.parse(parser, data=made_data() if harness.FOLDER else None)
    data, totals = options.data / "docs_real", defaultdict(int)
    kept = contextlib.nullcontext(options.index) if options.index else tempfile.TemporaryDirectory()
    with kept as place:
        for name, questions in questions_in(data).items():
            kept_at = Path(place) / f"{name}.mvx"
            index, seconds = filled(data / name, kept_at, options.encoder, TITLES[options.titles])
            with index:
                rows = list(rows_of(index, questions, options.mode))
                row = {"set": name, "questions": len(rows), "passages": len(index), "seconds": round(seconds, 1)}
            for row_of in rows:
                if options.wrong and not row_of["citation"]:
                    print(json.dumps(row_of, ensure_ascii=False))
            counts = {judged: sum(one[judged] for one in rows) for judged in (*JUDGED, "cited")}
            for judged, number in {"questions": len(rows), **counts}.items():
                totals[judged] += number
            harness.show({**row, **counts}, options.json)
    harness.show({"set": "all", **totals}, options.json)


if __name__ == "__main__":
    main()
