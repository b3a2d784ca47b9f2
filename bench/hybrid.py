"""Compare dense, lexical and hybrid search on real collections: quality and latency.

    python bench/hybrid.py --data DIR [--sets squad,med] [--encoder minilm] [--sample 2500] [--json]

DIR holds one folder a collection, as for bench/quality.py. Everything goes through the product: `Index.add`,
`Index.search`, `Evaluation`. Of sets with gold passages a sample of the questions by chance (seed 0), of squad from its
test part; R@1, R@5 and R@20 of the gold passage. Of judged sets all questions; nDCG@10 and S@1. `above` is the
difference of hybrid to the better of its two parts in the first figure, in points, with the standard error of the
paired differences. Times are medians of single searches with the encoder, so with the encoding of the question.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tiny
from quality import GOLD_SETS, batches, load

import mvindex
from mvindex.corpus import read_documents
from mvindex.encoder import load_encoder
from mvindex.eval.metrics import Evaluation
from mvindex.eval.questions import read_qrels, read_questions

MODES = {
    "dense": {"mode": "dense"},
    "lexical": {"mode": "lexical"},
    "hybrid": {"mode": "hybrid"},
    "minmax": {"mode": "hybrid", "fusion": "minmax"},
    "rrf": {"mode": "hybrid", "fusion": "rrf"},
}
TIMED = 100


def loaded(data, name, sample):
    corpus, files, qrels, options = load(data, name)
    if name == "squad":
        files = [file for file in files if file.endswith("test.jsonl")]
    questions = list(read_questions(files))
    if qrels is None and len(questions) > sample:
        questions = random.Random(0).sample(questions, sample)
    return corpus, options, questions, read_qrels(qrels) if qrels else None


class Measured:
    """The figures of one mode over the questions so far."""

    def __init__(self, qrels):
        self._qrels, self._whole, self._right = qrels, Evaluation(qrels=qrels), 0
        self.firsts = []

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


def measured(index, questions, qrels):
    """Return the figures of every mode over the same question vectors."""
    found = {mode: Measured(qrels) for mode in MODES}
    for batch in batches(questions):
        texts = [question.text for question in batch]
        vectors = index.encode_queries(texts)
        for mode, way in MODES.items():
            arguments = {"query": texts} if mode == "lexical" else {"query": vectors} | ({"text": texts} if way else {})
            results = index.search(**arguments, top_k=found[mode].depth, **way)
            for question, result in zip(batch, results, strict=True):
                found[mode].add(question, result)
    return found


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


def rows(data, name, encoder, lexical, sample):
    corpus, options, questions, qrels = loaded(data, name, sample)
    with (
        tempfile.TemporaryDirectory() as folder,
        mvindex.create(Path(folder) / "bench.mvx", encoder=encoder, lexical=lexical) as index,
    ):
        index.add(read_documents(str(corpus), options))
        found = measured(index, questions, qrels)
        times = {mode: median_ms(index, questions, way) for mode, way in MODES.items()}
        size = len(index)
    firsts = {mode: np.array(each.firsts) for mode, each in found.items()}
    best = max(("dense", "lexical"), key=lambda mode: firsts[mode].mean())
    for mode, each in found.items():
        row = {"set": name, "documents": size, "questions": len(each.firsts), "mode": mode, **each.means()}
        row["ms"] = times[mode]
        if mode not in ("dense", "lexical"):
            differences = firsts[mode] - firsts[best]
            row["above"] = float(differences.mean())
            row["error"] = float(differences.std(ddof=1) / len(differences) ** 0.5)
        yield row


def shown(row):
    parts = [f"{row['set']:20s} {row['questions']:6,} questions  {row['mode']:8s}"]
    parts += [f"{name} {100 * row[name]:5.1f}" for name in row if "@" in name]
    parts += [f"{row['ms']:6.1f} ms"]
    if "above" in row:
        parts += [f"above {100 * row['above']:+.1f} (error {100 * row['error']:.1f})"]
    return "  ".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=",".join([*GOLD_SETS, "vaswani", "cisi", "cacm", "med", "time", "pubmedqa"]))
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--lexical", default="english", choices=["english", "unicode"])
    parser.add_argument("--sample", type=int, default=2500)
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(parser, data=tiny.DATA, sets="squad", sample=10)
    encoder = load_encoder(options.encoder)
    for name in options.sets.split(","):
        for row in rows(options.data, name, encoder, options.lexical, options.sample):
            print(json.dumps(row) if options.json else shown(row))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
