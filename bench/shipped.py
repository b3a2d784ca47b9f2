"""The encoder that ships: trained from several seeds on the shared collections, measured beside the one it starts from.

    python bench/shipped.py train --data DIR --out DIR --seed N
    python bench/shipped.py measure --data DIR --encoder minilm|DIR [--parts dev,test] [--sets NAME,...] [--family NAME]

DIR of --data holds the shared collections. `train` takes the preset `snippets` as it is, on the training part of
squad, and chooses the epoch by the questions of its dev part over their own passages (mvindex_train/data/splits.py);
both are left in --out, so that `mvindex train --preset snippets --train OUT/train.jsonl --dev OUT/dev.jsonl` is the
same run. `measure` goes through
the product, `Index.add` and `Index.search`: R@1/5/20/100 with a 95 % bootstrap interval of each part's questions over
all passages of their collection; nDCG@10 of the collections with judgements (all of which are test).
"""

import argparse
import json
import sys
import tempfile
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import torch

import mvindex
from mvindex.corpus import CorpusOptions, read_documents
from mvindex.encoder import load_encoder
from mvindex.eval.metrics import Evaluation
from mvindex.eval.questions import read_qrels, read_questions
from mvindex_train.data import Part, shared_examples
from mvindex_train.data.records import write_example
from mvindex_train.data.splits import SharedSet
from mvindex_train.presets import preset
from mvindex_train.trainer import TrainJob, train

TRAINED = [SharedSet.SQUAD]
PASSAGES = {
    "squad": ("passages.tsv", CorpusOptions()),
    "squadshifts_amazon": ("passages.tsv.gz", CorpusOptions(title_field="")),
    "squadshifts_reddit": ("passages.tsv.gz", CorpusOptions(title_field="")),
}
JUDGED = ("vaswani", "cisi", "cacm", "med", "time", "pubmedqa")
BATCH = 256
RESAMPLES = 10_000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["train", "measure"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--family")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--parts", default="dev,test")
    parser.add_argument("--sets", default=",".join([*PASSAGES, *JUDGED]))
    options = parser.parse_args()
    if options.action == "train":
        run(options)
        return
    torch.set_num_threads(options.threads)
    encoder = load_encoder(options.encoder, family=options.family)
    for name in options.sets.split(","):
        rows = gold(options, name, encoder) if name in PASSAGES else [judged(options.data / name, encoder)]
        for row in rows:
            print(json.dumps({"set": name, "encoder": options.encoder, **row}), flush=True)


def run(options):
    options.out.mkdir(parents=True, exist_ok=True)
    for part in (Part.TRAIN, Part.DEV):
        with (options.out / f"{part.value}.jsonl").open("wb") as file:
            for example in shared_examples(options.data, part, TRAINED):
                write_example(example, file)
    files = [f"data.{part}={options.out / f'{part}.jsonl'}" for part in ("train", "dev")]
    given = [*files, f"optimiser.seed={options.seed}", *options.set]
    config = preset("snippets").with_overrides(given)
    out = options.out / f"seed-{options.seed}"
    print(json.dumps(train(TrainJob(config=config, out=out, on_record=log, on_note=note))), flush=True)


def log(record):
    if record.get("kind") == "step" and record["step"] % 5 == 0:
        print(json.dumps(record), file=sys.stderr, flush=True)


def note(text):
    print(text, file=sys.stderr, flush=True)


def gold(options, name, encoder):
    """Recall of each part's questions over all passages of the collection."""
    file, corpus_options = PASSAGES[name]
    with indexed(options.data / name / file, corpus_options, encoder) as index:
        for part in options.parts.split(","):
            examples = shared_examples(options.data, Part(part), [SharedSet(name)])
            ranks = [rank for batch in batches(examples) for rank in gold_ranks(index, batch, f"{name}/")]
            yield {"part": part, "questions": len(ranks), **recall(np.array(ranks))}


def gold_ranks(index, examples, prefix):
    results = index.search([example.question for example in examples], top_k=100)
    for example, result in zip(examples, results, strict=True):
        gold_id = example.positives[0].id.removeprefix(prefix)
        ids = [hit.id for hit in result.hits]
        yield ids.index(gold_id) + 1 if gold_id in ids else 10**6


def recall(ranks):
    """R@k with the percentiles 2.5 and 97.5 of resampled questions."""
    drawn = np.random.default_rng(0).integers(len(ranks), size=(RESAMPLES, len(ranks)), dtype=np.int32)
    found = {}
    for k in (1, 5, 20, 100):
        hits = ranks <= k
        low, high = np.percentile(hits[drawn].mean(axis=1), [2.5, 97.5])
        found[f"R@{k}"] = [round(100 * float(value), 2) for value in (hits.mean(), low, high)]
    return found


def judged(folder, encoder):
    evaluation = Evaluation(qrels=read_qrels(str(folder / "qrels/test.tsv")))
    with indexed(folder / "corpus.jsonl.gz", CorpusOptions(), encoder) as index:
        for batch in batches(read_questions([str(folder / "queries.jsonl")])):
            results = index.search([question.text for question in batch], top_k=evaluation.needed_depth)
            for question, result in zip(batch, results, strict=True):
                evaluation.add(question, result)
    report = evaluation.report()
    return {"questions": report["counts"]["qrels"], **{k: round(100 * v, 2) for k, v in report["qrels"].items()}}


@contextmanager
def indexed(corpus, options, encoder):
    with (
        tempfile.TemporaryDirectory() as folder,
        mvindex.create(Path(folder) / "bench.mvx", encoder=encoder) as index,
    ):
        index.add(read_documents(str(corpus), options))
        yield index


def batches(items):
    iterator = iter(items)
    while batch := list(islice(iterator, BATCH)):
        yield batch


if __name__ == "__main__":
    main()
