"""Compare lexical search with FTS5's bm25() and with bm25s over the same terms, and measure the cost of indexing terms.

    python bench/lexical.py --data DIR [--documents 20000,200000,1000000] [--bm25s-up-to N] [--fts5-up-to N] [--json]

The documents are the passages of squad, wiki_sample and pubmedqa in DIR, again under new ids until there are as many
as given: then the postings of a rare term grow with the collection as those of a common term do, so times at large
sizes are rather too high. Questions are those of squad's test part. One view of 8 dims each, `--lexical english`.
Times are medians and 95th percentiles of 100 questions, one at a time, of the top 10 ids and scores: mvindex's also
reads the texts and names the snippet.
"""

import gc
import itertools
import re
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import harness
import numpy as np

import mvindex
from mvindex.corpus import read_documents
from mvindex.index import embedded_store_of
from mvindex.measure.questions import read_questions
from mvindex.search.fusion import Fusion
from mvindex.store.lexical.tokenizer import Lexical, tokenize

FILES = ("squad/passages.tsv", "wiki_sample/passages.tsv.zst", "pubmedqa/corpus.jsonl.gz")
BATCH, DIM, TOP_K = 10_000, 8, 10
TOKENIZER = "porter unicode61 remove_diacritics 2"


def documents_of(data, count):
    texts = [(each.title, each.text) for file in FILES for each in read_documents(str(data / file))]
    for number, (title, text) in zip(range(count), itertools.cycle(texts), strict=False):
        yield mvindex.Document(str(number), text, title)


def batches_of(data, count):
    documents = documents_of(data, count)
    while batch := list(itertools.islice(documents, BATCH)):
        yield batch


def filled(path, data, count, lexical):
    """Return an index, and the seconds that its ingest took."""
    rng, index, spent = np.random.default_rng(0), mvindex.create(path, dim=DIM, lexical=lexical), 0.0
    for batch in batches_of(data, count):
        views = rng.standard_normal((len(batch), DIM)).astype(np.float32)
        begun = time.perf_counter()
        index.add_views(batch, views)
        spent += time.perf_counter() - begun
    return index, spent


def timed(ask, questions):
    """Return p50 and p95 in ms, and the results of the last 100 questions."""
    for question in questions[:20]:
        ask(question)
    spent, found = [], []
    for question in questions[20:120]:
        begun = time.perf_counter()
        found.append(ask(question))
        spent.append(1e3 * (time.perf_counter() - begun))
    return {"p50": float(np.median(spent)), "p95": float(np.quantile(spent, 0.95))}, found


def by_mvindex(index):
    return lambda question: [hit.score for hit in index.search(question, TOP_K, mode="lexical").hits]


def by_fts5(data, count, connection):
    connection.execute(f"CREATE VIRTUAL TABLE t USING fts5(text, content='', tokenize='{TOKENIZER}')")
    with connection:
        for batch in batches_of(data, count):
            rows = ((int(each.id), f"{each.title}\n{each.text}") for each in batch)
            connection.executemany("INSERT INTO t(rowid, text) VALUES (?, ?)", rows)

    def ask(question):
        terms = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        query = "SELECT -bm25(t) FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT ?"
        return [score for (score,) in connection.execute(query, (terms, TOP_K))]

    return ask


def by_bm25s(data, count):
    import bm25s

    vocabulary, texts = {}, []
    for batch in batches_of(data, count):
        found = tokenize([f"{each.title}\n{each.text}" for each in batch], Lexical.ENGLISH)
        of_text = [[] for _ in batch]
        for place, term in enumerate(found.hashes.tolist()):
            number = vocabulary.setdefault(term, len(vocabulary))
            at = slice(found.starts[place], found.starts[place + 1])
            for text, times in zip(found.texts[at].tolist(), found.counts[at].tolist(), strict=True):
                of_text[text] += [number] * times
        texts += [np.array(each, dtype=np.int32) for each in of_text]
    other = bm25s.BM25(k1=Fusion().k1, b=Fusion().b, method="lucene")
    names = {str(term): number for term, number in vocabulary.items()}
    other.index(bm25s.tokenization.Tokenized(ids=texts, vocab=names), show_progress=False)

    def ask(question):
        found = tokenize([question], Lexical.ENGLISH)
        # Of one text: each term has one count.
        pairs = zip(map(str, found.hashes.tolist()), found.counts.tolist(), strict=True)
        known = [term for term, times in pairs if term in names for _ in range(times)]
        _, scores = other.retrieve([known], k=TOP_K, show_progress=False)
        # Lucene leaves out the factor k1 + 1, which changes no order.
        return [(Fusion().k1 + 1) * float(score) for score in scores[0] if score > 0]

    return ask


def _size(index):
    """Return the bytes of the catalog after its log was written back."""
    path = embedded_store_of(index).snapshot.source.catalog.path
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def row_of(data, count, questions, with_fts5, with_bm25s):
    with tempfile.TemporaryDirectory() as folder:
        without, plain_s = filled(Path(folder) / "without.mvx", data, count, None)
        bytes_before = _size(without)
        begun = time.perf_counter()
        without.admin.enable_lexical("english")
        build_s = time.perf_counter() - begun
        bytes_added = _size(without) - bytes_before
        without.close()
        index, lexical_s = filled(Path(folder) / "with.mvx", data, count, "english")
        row = {"documents": count, "added_ms_a_document": 1e3 * (lexical_s - plain_s) / count, "build_s": build_s}
        row["bytes_a_document"] = bytes_added / count
        row["mvindex_ms"], ours = timed(by_mvindex(index), questions)
        index.close()
        if with_fts5:
            with closing(sqlite3.connect(Path(folder) / "fts5.sqlite")) as connection:
                row["fts5_ms"], _ = timed(by_fts5(data, count, connection), questions)
        if with_bm25s:
            gc.collect()
            row["bm25s_ms"], theirs = timed(by_bm25s(data, count), questions)
            pairs = [pair for both in zip(ours, theirs, strict=True) for pair in zip(*both, strict=True)]
            row["largest_difference_from_bm25s"] = max(abs(one / other - 1) for one, other in pairs)
        return row


def main():
    parser = harness.parser(
        __doc__, data=Path, documents="20000,200000,1000000", bm25s_up_to=200_000, fts5_up_to=1_000_000, json=False
    )
    options = harness.parse(parser, data=harness.DATA, documents="400", bm25s_up_to=0)
    read = read_questions([str(options.data / "squad/questions.test.jsonl")])
    questions = [question.text for question in itertools.islice(read, 120)]
    for count in map(int, options.documents.split(",")):
        row = row_of(options.data, count, questions, count <= options.fts5_up_to, count <= options.bm25s_up_to)
        harness.show(row, options.json, shown)


def shown(row):
    parts = [f"{row['documents']:,} documents"]
    for name, value in row.items():
        if isinstance(value, dict):
            parts.append(f"{name.removesuffix('_ms')} {value['p50']:.1f} ms (p95 {value['p95']:.1f})")
        elif isinstance(value, float):
            parts.append(f"{name} {value:.3g}")
    return "  ".join(parts)


if __name__ == "__main__":
    main()
