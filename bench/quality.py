"""Measure zero-shot retrieval quality of the families `snippets` and `single` beside BM25, on real collections.

    python bench/quality.py --data DIR [--sets squad,vaswani] [--families snippets,single] [--json]

DIR holds one folder a collection: DPR passages with question files, or the BEIR layout with qrels. Everything goes
through the product: `Index.add`, `Index.search`, `Evaluation`. BM25 is bm25s (k1 .9, b .4, English stemmer and
stopwords) on title and text. The packaged MiniLM was trained on pairs from SQuAD, Reddit and others, so its zero-shot
figures on such data are optimistic.
"""

import argparse
import json
import sys
import tempfile
from itertools import islice
from pathlib import Path

import tiny

import mvindex
from mvindex.corpus import CorpusOptions, read_documents
from mvindex.encoder import load_encoder
from mvindex.eval.metrics import Evaluation
from mvindex.eval.questions import read_qrels, read_questions
from mvindex.records import Hit, SearchResult

# name -> (corpus, question files, qrels, options): titles of the two SQuADShifts sets mean nothing.
NO_TITLE = CorpusOptions(title_field="")
GOLD_SETS = {
    "squad": ("passages.tsv", ["questions.train.jsonl", "questions.test.jsonl"], CorpusOptions()),
    "squadshifts_amazon": ("passages.tsv.gz", ["questions.jsonl.gz"], NO_TITLE),
    "squadshifts_reddit": ("passages.tsv.gz", ["questions.jsonl.gz"], NO_TITLE),
}
JUDGED_SETS = ("vaswani", "cisi", "cacm", "med", "time", "pubmedqa")
BATCH = 256


def load(data, name):
    if name in GOLD_SETS:
        corpus, files, options = GOLD_SETS[name]
        return data / name / corpus, [str(data / name / file) for file in files], None, options
    folder = data / name
    return folder / "corpus.jsonl.gz", [str(folder / "queries.jsonl")], str(folder / "qrels/test.tsv"), CorpusOptions()


def batches(items):
    iterator = iter(items)
    while batch := list(islice(iterator, BATCH)):
        yield batch


def dense(corpus, options, questions, evaluation, encoder):
    with (
        tempfile.TemporaryDirectory() as folder,
        mvindex.create(Path(folder) / "bench.mvx", encoder=encoder) as index,
    ):
        index.add(read_documents(str(corpus), options))
        views = index.info().views / len(index)
        for batch in batches(read_questions(questions)):
            results = index.search([question.text for question in batch], top_k=evaluation.needed_depth)
            for question, result in zip(batch, results, strict=True):
                evaluation.add(question, result)
    return views


def bm25(corpus, options, questions, evaluation):
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    documents = list(read_documents(str(corpus), options))
    texts = [f"{document.title} {document.text}" for document in documents]
    retriever = bm25s.BM25(k1=0.9, b=0.4)
    retriever.index(bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)
    depth = min(evaluation.needed_depth, len(documents))
    for batch in batches(read_questions(questions)):
        asked = bm25s.tokenize([q.text for q in batch], stopwords="en", stemmer=stemmer, show_progress=False)
        rows, scores = retriever.retrieve(asked, k=depth, show_progress=False)
        for question, its_rows, its_scores in zip(batch, rows, scores, strict=True):
            hits = [hit(documents[row], score) for row, score in zip(its_rows, its_scores, strict=True) if score > 0]
            evaluation.add(question, SearchResult(tuple(hits), exact=True, short_by=0, rounds=1))


def hit(document, score):
    return Hit(document.id, float(score), 0, None, None, document.text, document.title, document.metadata)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=",".join([*GOLD_SETS, *JUDGED_SETS]))
    parser.add_argument("--families", default="snippets,single,bm25")
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(parser, data=tiny.DATA, sets="squad")
    families = options.families.split(",")
    encoders = {name: load_encoder("minilm", family=name) for name in families if name != "bm25"}
    for name in options.sets.split(","):
        corpus, questions, qrels, corpus_options = load(options.data, name)
        for family in families:
            evaluation = Evaluation(qrels=read_qrels(qrels) if qrels else None)
            views = 1.0
            if family == "bm25":
                bm25(corpus, corpus_options, questions, evaluation)
            else:
                views = dense(corpus, corpus_options, questions, evaluation, encoders[family])
            report = evaluation.report()
            row = {"set": name, "family": family, "views_per_document": round(views, 2), **report}
            if options.json:
                print(json.dumps(row))
            else:
                figures = report.get("gold") or report["qrels"]
                shown = "  ".join(f"{metric} {100 * value:.1f}" for metric, value in figures.items())
                print(f"{name:20s} {family:9s} {views:5.2f} views  {shown}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
