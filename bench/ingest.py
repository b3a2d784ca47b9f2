"""Measure ingest speed as a share of the bare encoder's, on the same documents, in one run.

    python bench/ingest.py --corpus passages.tsv [--limit 1024] [--repeats 3] [--json]

`forward` is only the model's forward pass over the very token batches that the ingest makes (tokenised before the
clock starts); `encode` is the encoder as the ingest calls it (sentences, tokens, forward, pooling); `ingest` is all
of it: reading the file, duplicates, hashes, encoding, fp16, fsync, catalog. Alternated; medians of wall seconds.
"""

import json
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

import harness
import torch

import mvindex
from mvindex.corpus import read_documents
from mvindex.encoder import load_encoder, transformer
from mvindex.ingest import Entry
from mvindex.ingest.pipeline import read_chunks


def run_forward(forward, batches):
    with torch.inference_mode():
        for batch in batches:
            forward(*batch)


def main():
    parser = harness.parser(__doc__, corpus=str, limit=1024, repeats=3, json=False)
    options = harness.parse(parser, corpus=harness.SQUAD, limit=8, repeats=1)
    encoder = load_encoder("minilm")
    documents = list(islice(read_documents(options.corpus), options.limit))
    chunks = [[entry.document for entry in chunk] for chunk in read_chunks(Entry("", item) for item in documents)]
    forward, batches = transformer.last_states, []

    def recording(model, batch):
        batches.append((model, batch))
        return forward(model, batch)

    transformer.last_states = recording
    for chunk in chunks:
        encoder.encode_documents(chunk)
    transformer.last_states = forward
    with tempfile.TemporaryDirectory() as folder:
        runs = iter(range(1_000_000))

        def ingest():
            with mvindex.create(Path(folder) / f"{next(runs)}.mvx", encoder=encoder, lexical="none") as index:
                index.add(islice(read_documents(options.corpus), options.limit))

        calls = {
            "forward": lambda: run_forward(forward, batches),
            "encode": lambda: [encoder.encode_documents(chunk) for chunk in chunks],
            "ingest": ingest,
        }
        times = {name: [] for name in calls}
        for repeat in range(options.repeats + 1):
            for name, call in calls.items():
                seconds, _ = harness.timed(call, time.perf_counter)
                if repeat:
                    times[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    row = {
        "documents": len(documents),
        **{f"{name}_per_s": round(len(documents) / value, 1) for name, value in medians.items()},
        "ingest_share_of_encode": round(medians["encode"] / medians["ingest"], 3),
        "ingest_share_of_forward": round(medians["forward"] / medians["ingest"], 3),
    }
    print(json.dumps(row) if options.json else "\n".join(f"{name:26s} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
