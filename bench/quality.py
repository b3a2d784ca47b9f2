"""Compare one vector, several views, BM25 and hybrid search on real collections: quality and latency.

    python bench/quality.py --data DIR [--sets squad,med] [--encoder minilm-views] [--sample 2500] [--json]

DIR holds one folder a collection: DPR passages with question files, or the BEIR layout with qrels. Everything goes
through the product: `Index.add`, `Index.search`, `Evaluation`. Of sets with gold passages a sample of the questions by
chance (seed 0), of squad from its test part; R@1, R@5 and R@20 of the gold passage. Of judged sets all questions;
nDCG@10 and S@1. `error` is the standard error of the first figure, `above` the difference to the best of single, views
and bm25 in it, with the standard error of the paired differences, all in points. Milliseconds are the median of single
searches by text, so with the encoding of the question. The packaged MiniLM was trained on pairs from SQuAD, Reddit and
others, so its figures on such data are optimistic.
"""

import random
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import harness
import numpy as np

import mvindex
from mvindex.corpus import CorpusOptions, read_documents
from mvindex.encoder import load_encoder
from mvindex.measure.metrics import Evaluation
from mvindex.measure.questions import read_qrels, read_questions

# name -> (corpus, question files, options): titles of the two SQuADShifts sets mean nothing.
NO_TITLE = CorpusOptions(title_field="")
GOLD_SETS = {
    "squad": ("passages.tsv", ["questions.train.jsonl", "questions.test.jsonl"], CorpusOptions()),
    "squadshifts_amazon": ("passages.tsv.gz", ["questions.jsonl.gz"], NO_TITLE),
    "squadshifts_reddit": ("passages.tsv.gz", ["questions.jsonl.gz"], NO_TITLE),
}
JUDGED_SETS = ("vaswani", "cisi", "cacm", "med", "time", "pubmedqa")
BATCH = 256
SINGLE = {"single": {"mode": "dense"}}
VIEWS = {
    "views": {"mode": "dense"},
    "bm25": {"mode": "lexical"},
    "hybrid": {"mode": "hybrid"},
    "minmax": {"mode": "hybrid", "fusion": "minmax"},
    "rrf": {"mode": "hybrid", "fusion": "rrf"},
}
PARTS = ("single", "views", "bm25")
TIMED = 100


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


def loaded(data, name, sample):
    """Return documents, questions and judgements, which are None for a set with gold passages."""
    corpus, files, qrels, options = load(data, name)
    if name == "squad":
        files = [file for file in files if file.endswith("test.jsonl")]
    questions = list(read_questions(files))
    if qrels is None and len(questions) > sample:
        questions = random.Random(0).sample(questions, sample)
    return list(read_documents(str(corpus), options)), questions, read_qrels(qrels) if qrels else None


class Measured:
    """The figures of one mode over the questions so far."""

    def __init__(self, qrels):
        self._qrels, self._whole, self._right = qrels, Evaluation(qrels=qrels), 0
        self.firsts = []
        self.ms = 0.0

    @property
    def depth(self):
        return self._whole.needed_depth

    def add(self, question, result):
        self._whole.add(question, result)
        if self._qrels is None or question.id in self._qrels:
            judged = self._qrels and self._qrels[question.id]
            single = Evaluation(qrels=judged and {question.id: judged})
            single.add(question, result)
            self.firsts.append(next(iter(figures(single.report()).values())))
            self._right += bool(judged and result.hits and judged.get(result.hits[0].id, 0) > 0)

    def means(self):
        return figures(self._whole.report()) | ({"S@1": self._right / len(self.firsts)} if self._qrels else {})


def measured(material, encoder, modes):
    """Return views per document, and the figures of every mode over the same question vectors."""
    documents, questions, qrels = material
    found = {mode: Measured(qrels) for mode in modes}
    with (
        tempfile.TemporaryDirectory() as folder,
        mvindex.create(Path(folder) / "bench.mvx", encoder=encoder, lexical="english") as index,
    ):
        index.add(documents)
        views = index.info().views / len(index)
        for batch in batches(questions):
            texts = [question.text for question in batch]
            vectors = index.encode_queries(texts)
            for mode, way in modes.items():
                queries = texts if way["mode"] == "lexical" else vectors
                results = index.search(queries, text=texts, top_k=found[mode].depth, **way)
                for question, result in zip(batch, results, strict=True):
                    found[mode].add(question, result)
        for mode, way in modes.items():
            found[mode].ms = median_ms(index, questions, way)
    return views, found


def figures(report):
    if "gold" in report:
        return {name: report["gold"][name] for name in ("R@1", "R@5", "R@20")}
    return {"nDCG@10": report["qrels"]["nDCG@10"]}


def median_ms(index, questions, way):
    spent = []
    for question in questions[:TIMED]:
        begun = time.perf_counter()
        index.search(question.text, **way)
        spent.append(time.perf_counter() - begun)
    return 1e3 * float(np.median(spent))


def rows(data, name, encoders, sample):
    material = loaded(data, name, sample)
    single, views = (
        measured(material, encoders[mode], modes) for mode, modes in (("single", SINGLE), ("views", VIEWS))
    )
    found = single[1] | views[1]
    firsts = {mode: np.array(each.firsts) for mode, each in found.items()}
    best = max(PARTS, key=lambda mode: firsts[mode].mean())
    for mode, each in found.items():
        row = {"set": name, "documents": len(material[0]), "questions": len(each.firsts), "mode": mode}
        row |= {"views": round((single if mode == "single" else views)[0], 2)} | each.means()
        row |= {"error": standard_error(firsts[mode]), "ms": each.ms}
        if mode not in PARTS:
            differences = firsts[mode] - firsts[best]
            row |= {"best": best, "above": float(differences.mean()), "above_error": standard_error(differences)}
        yield row


def standard_error(values):
    return float(values.std(ddof=1) / len(values) ** 0.5)


def shown(row):
    parts = [f"{row['set']:20s} {row['questions']:6,} questions  {row['views']:5.2f} views  {row['mode']:7s}"]
    parts += [f"{name} {100 * row[name]:5.1f}" for name in row if "@" in name]
    parts += [f"error {100 * row['error']:.1f}  {row['ms']:6.1f} ms"]
    if "above" in row:
        parts += [f"above {row['best']} {100 * row['above']:+.1f} (error {100 * row['above_error']:.1f})"]
    return "  ".join(parts)


def options_of(description):
    """Return the options of a bench of collections."""
    parser = harness.parser(
        description,
        data=Path,
        sets=",".join([*GOLD_SETS, *JUDGED_SETS]),
        encoder="minilm-views",
        sample=2500,
        json=False,
    )
    return harness.parse(parser, data=harness.DATA, sets="squad", sample=10)


def main():
    options = options_of(__doc__)
    encoders = {"single": load_encoder(options.encoder, family="single"), "views": load_encoder(options.encoder)}
    for name in options.sets.split(","):
        for row in rows(options.data, name, encoders, options.sample):
            harness.show(row, options.json, shown)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
