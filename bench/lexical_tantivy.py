"""Compare lexical search with tantivy: CPU time of a query, and size and CPU time of an index.

    pip install tantivy
    python bench/lexical_tantivy.py [--documents 200000,1000000] [--questions 100] [--json]

Documents are 40 to 120 words, drawn from 300,000 made words by Zipf's law; a question is eight words of one of them.
Both sides keep ids and texts, and count frequencies but no positions; mvindex also keeps a view of 8 dims a document,
for which the time without terms is given. Before the times, a small index is filled, which loads compiled loops:
`loading` is what that takes, once a process. Queries are for the top 10, one at a time on one thread, the sides
alternated: `ids` reads ids and scores, `texts` the texts too, for mvindex with snippet and citation. `first` is the
first time that a question is asked, when its terms are read; the other figures are medians and 95th percentiles of the
times after that. Dense, lexical and hybrid queries of the same index are alternated too, also for the top 100 without
texts, which are the lists that hybrid search fuses. Without tantivy mvindex's side is measured by itself.
"""

import argparse
import importlib.util
import json
import os
import sqlite3
import string
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import tiny

import mvindex
from mvindex.index import embedded_store_of
from mvindex.kernels import expect_work
from mvindex.kernels.threads import set_threads

BATCH, DIM, TOP_K, NUM_WORDS = 10_000, 8, 10, 300_000


def batches(count):
    """Yield (first number, texts) of batches of documents, the same at each call."""
    rng = np.random.default_rng(0)
    letters = np.array(list(string.ascii_lowercase))
    # Frequent words are short: 3 letters to 9.
    words = np.array(
        ["".join(rng.choice(letters, 3 + min(6, number.bit_length() // 3))) for number in range(NUM_WORDS)]
    )
    shares = np.cumsum(1 / (np.arange(NUM_WORDS) + 2.7) ** 1.05)
    for first in range(0, count, BATCH):
        lengths = rng.integers(40, 121, min(BATCH, count - first))
        drawn = np.searchsorted(shares, rng.random(lengths.sum()) * shares[-1])
        parts = np.split(words[np.minimum(drawn, NUM_WORDS - 1)], np.cumsum(lengths)[:-1])
        yield first, [" ".join(part.tolist()) for part in parts]


def questions_of(count, num_questions):
    rng, (_, texts) = np.random.default_rng(1), next(batches(count))
    chosen = rng.choice(len(texts), num_questions)
    return [" ".join(rng.permutation(texts[number].split())[:8]) for number in chosen]


def filled(path, count, lexical):
    """Return an index, and the CPU seconds that its ingest took."""
    rng, index, spent = np.random.default_rng(0), mvindex.create(path, dim=DIM, lexical=lexical), 0.0
    for first, texts in batches(count):
        views = rng.standard_normal((len(texts), DIM)).astype(np.float32)
        documents = [mvindex.Document(str(first + number), text) for number, text in enumerate(texts)]
        begun = time.process_time()
        index.add_views(documents, views)
        spent += time.process_time() - begun
    return index, spent


def filled_tantivy(path, count):
    """Return a tantivy index, and the CPU seconds of all its threads."""
    import tantivy

    path.mkdir()
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    schema.add_text_field("body", stored=True, index_option="freq")
    index = tantivy.Index(schema.build(), str(path))
    writer = index.writer(200_000_000, 1)
    # Its thread works while texts are made: their time is taken off.
    begun, making, made = time.process_time(), 0.0, iter(batches(count))
    while True:
        own = time.thread_time()
        batch = next(made, None)
        making += time.thread_time() - own
        if batch is None:
            break
        for number, text in enumerate(batch[1]):
            writer.add_document(tantivy.Document(id=str(batch[0] + number), body=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    return index, time.process_time() - begun - making


def size_of(folder, without=()):
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file() and each.suffix not in without)


def term_bytes(index):
    """Return the bytes of postings and lengths in the catalog, after its log was written back."""
    with closing(sqlite3.connect(embedded_store_of(index).snapshot.source.catalog.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = (
            "SELECT (SELECT total(length(postings)) FROM lexical_blocks) + total(length(lengths)) FROM lexical_segments"
        )
        return int(connection.execute(query).fetchone()[0])


def by_tantivy(index, fields):
    searcher = index.searcher()

    def ask(question):
        query, _ = index.parse_query_lenient(question, ["body"])
        found = ((score, searcher.doc(place)) for score, place in searcher.search(query, TOP_K, count=False).hits)
        return [(*(document[field][0] for field in fields), score) for score, document in found]

    return ask


def timed(sides, questions):
    """Return first times, later medians and 95th percentiles, in CPU ms, of each side by name."""
    spent = {name: [] for name in sides}
    for repeat in range(3):
        for number, question in enumerate(questions):
            for name in list(sides) if (repeat + number) % 2 else reversed(sides):
                begun = time.process_time()
                sides[name](question)
                spent[name].append(1e3 * (time.process_time() - begun))
    rows = {}
    for name, times in spent.items():
        first, later = times[: len(questions)], times[len(questions) :]
        quantiles = {"p50": float(np.median(later)), "p95": float(np.quantile(later, 0.95))}
        rows[name] = {"first": float(np.median(first)), **quantiles}
    return rows


def row_of(folder, count, questions, has_tantivy):
    begun = time.process_time()
    filled(folder / "first.mvx", min(count, BATCH // 10), "unicode")[0].close()
    loading_s = time.process_time() - begun
    plain, plain_s = filled(folder / "plain.mvx", count, None)
    plain.close()
    index, ingest_s = filled(folder / "terms.mvx", count, "unicode")
    row = {"documents": count, "mvindex_s": ingest_s, "mvindex_s_without_terms": plain_s}
    row["loading_s"] = loading_s
    row |= {"mvindex_term_bytes": term_bytes(index), "mvindex_bytes": size_of(folder / "terms.mvx")}
    sides = {
        "mvindex ids": lambda text: index.search(text, TOP_K, mode="lexical", fields=()),
        "mvindex texts": lambda text: index.search(text, TOP_K, mode="lexical"),
    }
    if has_tantivy:
        other, row["tantivy_s"] = filled_tantivy(folder / "tantivy", count)
        row["tantivy_term_bytes"] = size_of(folder / "tantivy", {".store"})
        row["tantivy_bytes"] = size_of(folder / "tantivy")
        sides |= {"tantivy ids": by_tantivy(other, ["id"]), "tantivy texts": by_tantivy(other, ["id", "body"])}
    row["ms"] = timed(sides, questions)
    row["cache_bytes"] = index.info().term_bytes
    vectors = dict(zip(questions, np.random.default_rng(2).standard_normal((len(questions), DIM)), strict=True))
    modes = {
        "dense": lambda text: index.search(vectors[text], TOP_K, mode="dense"),
        "lexical": lambda text: index.search(text, TOP_K, mode="lexical"),
        "dense 100": lambda text: index.search(vectors[text], 100, mode="dense", fields=()),
        "lexical 100": lambda text: index.search(text, 100, mode="lexical", fields=()),
        "hybrid": lambda text: index.search(vectors[text], TOP_K, mode="hybrid", text=text),
    }
    row["modes_ms"] = timed(modes, questions)
    index.close()
    return row


def shown(row):
    held_mb = row["cache_bytes"] / 1e6
    lines = [f"{row['documents']:,} documents, {held_mb:.0f} MB of postings, load {os.getloadavg()[0]:.1f}"]
    for name, value in row.items():
        if name.endswith("bytes") and name != "cache_bytes":
            lines.append(f"  {name} {value / row['documents']:.0f} a document")
        elif "_s" in name and isinstance(value, float):
            lines.append(f"  {name} {value:.1f}")
    for name, each in {**row["ms"], **row["modes_ms"]}.items():
        lines.append(f"  {name}: p50 {each['p50']:.2f} ms (p95 {each['p95']:.2f}), first {each['first']:.2f}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", default="200000,1000000")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(parser, documents="500", questions=5)
    set_threads(1)
    expect_work()
    has_tantivy = importlib.util.find_spec("tantivy") is not None
    for count in map(int, options.documents.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            row = row_of(Path(folder), count, questions_of(count, options.questions), has_tantivy)
            print(json.dumps(row) if options.json else shown(row), flush=True)


if __name__ == "__main__":
    main()
