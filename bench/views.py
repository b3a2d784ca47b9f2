"""Measure what the number of views and the splitter do to quality, storage and the time of encoding.

    python bench/views.py --data DIR [--sets limit_small,squad] [--views 1,8,auto] [--sample 1500] [--json]

DIR holds one folder a collection, as for bench/quality.py, and limit_small (BEIR, qrels.jsonl). Everything goes through
the product. Of squad and its shifts the gold passages of a sample of the test questions by chance (seed 0) are the
corpus, which is smaller than in other benches; R@1. Of judged sets nDCG@10 over all of it. `over sentences` is the
difference to the splitter `sentences-1`, of which there are views up to the same number, in points, with the standard
error of the paired differences. Seconds are of the processor, for encoding and storing all documents.
"""

import argparse
import gzip
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
from mvindex.measure.questions import read_qrels, read_questions

SPLITTERS = ("sentences-1", "parts-1")
MODES = {"dense": {"mode": "dense"}, "hybrid": {"mode": "hybrid"}}
DEPTH = 10


def loaded(data, name, sample):
    """Return documents, questions and judgements; each question has some."""
    if name == "limit_small":
        corpus, files, qrels, options = data / name / "corpus.jsonl", [str(data / name / "queries.jsonl")], {}, None
        for row in json_rows(data / name / "qrels.jsonl"):
            qrels.setdefault(row["query-id"], {})[row["corpus-id"]] = row["score"]
    else:
        corpus, files, path, options = load(data, name)
        files = [file for file in files if "train" not in file]
        qrels = read_qrels(path) if path else gold(files, sample)
    documents = list(read_documents(str(corpus), options) if options else read_documents(str(corpus)))
    if name in GOLD_SETS:
        golden = {passage for judged in qrels.values() for passage in judged}
        documents = [document for document in documents if document.id in golden]
    return documents, [question for question in read_questions(files) if question.id in qrels], qrels


def gold(files, sample):
    rows = [row for file in files for row in json_rows(Path(file))]
    chosen = random.Random(0).sample(rows, sample) if len(rows) > sample else rows
    return {str(row["id"]): {str(row["passage_id"]): 1} for row in chosen}


def json_rows(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
        return [json.loads(line) for line in file]


def figure(result, judged, is_gold):
    """Return R@1 of a gold passage, or nDCG@10."""
    gains = np.array([max(judged.get(hit.id, 0), 0) for hit in result.hits[:DEPTH]], dtype=float)
    if is_gold:
        return float(len(gains) and gains[0] > 0)
    ideal = np.sort([max(gain, 0) for gain in judged.values()])[::-1][:DEPTH]
    discounts = 1 / np.log2(np.arange(2, DEPTH + 2))
    best = float(ideal @ discounts[: len(ideal)])
    return float(gains @ discounts[: len(gains)]) / best if best else 0.0


def measured(encoder, material, is_gold):
    """Return the row of an encoder, and each question's figure by mode."""
    documents, questions, qrels = material
    with (
        tempfile.TemporaryDirectory() as folder,
        mvindex.create(Path(folder) / "bench.mvx", encoder=encoder, lexical="english") as index,
    ):
        begun = time.process_time()
        index.add(documents)
        spent = time.process_time() - begun
        views, found = index.info().views / len(documents), {mode: [] for mode in MODES}
        for batch in batches(questions):
            texts = [question.text for question in batch]
            vectors = index.encode_queries(texts)
            for mode, way in MODES.items():
                results = index.search(vectors, text=texts, top_k=DEPTH, **way)
                pairs = zip(batch, results, strict=True)
                found[mode] += [figure(result, qrels[question.id], is_gold) for question, result in pairs]
    row = {"views_per_document": views, "view_bytes_per_document": views * encoder.dim * 2, "cpu_seconds": spent}
    return row, {mode: np.array(values) for mode, values in found.items()}


def rows(data, name, most, sample, source):
    material = loaded(data, name, sample)
    before = None
    for splitter in SPLITTERS:
        encoder = load_encoder(source, max_views=most if most == "auto" else int(most), splitter=splitter)
        row, found = measured(encoder, material, name in GOLD_SETS)
        about = {"set": name, "documents": len(material[0]), "questions": len(material[1])}
        row = {**about, "max_views": most, "splitter": splitter, **row}
        for mode, values in found.items():
            row[mode] = float(values.mean())
            if before is not None:
                differences = values - before[mode]
                row[f"{mode}_over_sentences"] = float(differences.mean())
                row[f"{mode}_error"] = float(differences.std(ddof=1) / len(differences) ** 0.5)
        before = found
        yield row


def shown(row):
    parts = [f"{row['set']:20s} {row['max_views']:>4s} {row['splitter']:11s} {row['views_per_document']:6.2f} views"]
    parts += [f"{row['view_bytes_per_document'] / 1024:6.1f} KiB  {row['cpu_seconds']:6.1f} s"]
    for mode in MODES:
        parts += [f"{mode} {100 * row[mode]:5.1f}"]
        if f"{mode}_error" in row:
            parts += [f"({100 * row[f'{mode}_over_sentences']:+.1f}, error {100 * row[f'{mode}_error']:.1f})"]
    return "  ".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="limit_small")
    parser.add_argument("--views", default="1,8,16,32,auto")
    parser.add_argument("--encoder", default="minilm-views")
    parser.add_argument("--sample", type=int, default=1500)
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(parser, data=tiny.DATA, sets="limit_small,squad", views="8,auto", sample=10)
    for name in options.sets.split(","):
        for most in options.views.split(","):
            for row in rows(options.data, name, most, options.sample, options.encoder):
                print(json.dumps(row) if options.json else shown(row))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
