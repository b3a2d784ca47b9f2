"""Break down the time of a search in a warm process, for single queries and for batches.

    python bench/latency.py --data DATA [--queries 64] [--batches 1 64] [--top-k 10] [--plot FILE] [--json]
    python bench/latency.py --corpus transplants gauss --documents 100000 --kind ivf-pq --top-k 1 10 100 --data DATA
    python bench/latency.py --tiny

The first form is `mvindex query`: the command's own function answers SQuAD's questions over SQuAD's passages, encoded
by the packaged MiniLM; only the opening is replaced, by an index that stays open and warm (bench/start.py times a
process that starts). The second form is index.search() with given vectors, over the stand-ins of bench/scale.py; recall
is that of the certified answer. Documents that hits showed lately are in memory: --forget shows what it takes to read
them all, as a stream of questions does of which each finds others. --least-of asks each several times and takes the
least of each part: what a part takes when nothing disturbs it and all that it reads is in the caches. Corpus `seeded`
needs no data (bench/vectors.py). --tiny runs both over a few generated documents.

Real functions are timed where they stand: `encode` the query, `rank` by a scan or an engine, `rescore` what was found
for the proof and the order, `fetch` texts from the catalog, make `hits` of them, `show` them (print_result), `rest`
is everything else. Each part is its median over the queries (or batches), milliseconds a query, and their sum stands
beside the median of the whole. CPU time of the process, or --clock wall. All cores, unless OMP_NUM_THREADS says
otherwise.
"""

import contextlib
import io
import json
import tempfile
import time
from pathlib import Path

import harness
import numpy as np
from vectors import cached_squad, view_chunks

import mvindex
from mvindex import kernels
from mvindex.cli import query, results
from mvindex.cli.flags import LikeFlags, PageFlags, RerankFlags, SearchFlags
from mvindex.encoder import load_encoder, prepare_queries
from mvindex.engines import open_scan
from mvindex.engines.protocol import ranks_documents
from mvindex.index import embedded_store_of
from mvindex.measure.questions import Question
from mvindex.search import hits
from mvindex.search.exact import Best
from mvindex.search.local import EngineCache
from mvindex.store.reader import RecentDocuments, SnapshotReader

PARTS = ("encode", "rank", "rescore", "fetch", "hits", "show", "rest")
COLOURS = ("#4c78a8", "#f58518", "#e45756", "#72b7b2", "#54a24b", "#b0b0b0", "#dddddd")
CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
TINY_DOCUMENTS, TINY_DIM = 400, 16


class Clock:
    """Seconds spent in the parts since the last reset(); the functions are wrapped where they stand.

    A function that is called inside another one counts for its own part only.
    """

    def __init__(self, now, parts=PARTS):
        self.now, self._parts, self._inner, self._wrapped = now, parts, [], set()
        self.reset()

    def reset(self):
        self.seconds = dict.fromkeys(self._parts, 0.0)

    def wrap(self, owner, name, part):
        if (owner, name) in self._wrapped:
            return
        self._wrapped.add((owner, name))
        function = getattr(owner, name)

        def timed(*args, **kwargs):
            self._inner.append(0.0)
            begin = self.now()
            try:
                return function(*args, **kwargs)
            finally:
                spent = self.now() - begin
                self.seconds[part] += spent - self._inner.pop()
                if self._inner:
                    self._inner[-1] += spent

        setattr(owner, name, timed)

    def wrap_search(self, index):
        """Wrap what a search of this index calls."""
        if index.info().encoder is not None:
            self.wrap(type(index.encoder), "encode_queries", "encode")
        self.wrap(type(open_scan()), "candidates", "rank")
        ranking = EngineCache().open(embedded_store_of(index).snapshot)
        if ranking is not None:
            self.wrap(type(ranking), "documents" if ranks_documents(ranking) else "search", "rank")
        self.wrap(Best, "add", "rescore")
        self.wrap(Best, "settle", "rescore")
        self.wrap(SnapshotReader, "hit_documents", "fetch")
        self.wrap(hits, "hits_of", "hits")
        self.wrap(results, "print_result", "show")


class Questions:
    """Texts, answered by the command's own function; what it prints is dropped."""

    def __init__(self, case, index, questions, folder):
        self.case, self.index, self.questions, self.file = case, index, questions, Path(folder) / "questions.tsv"

    def __len__(self):
        return len(self.questions)

    def ask(self, first, batch, top_k):
        some = self.questions[first : first + batch]
        text, file = (some[0].text, None) if batch == 1 else (None, str(self.file))
        if file is not None:
            lines = (f"{number}\t{question.text}\n" for number, question in enumerate(some, start=1))
            self.file.write_text("".join(lines), encoding="utf-8")
        query.open_chosen = lambda *_, **__: contextlib.nullcontext(self.index)
        with contextlib.redirect_stdout(io.StringIO()):
            query.query(
                text=text, index=self.index.path, queries=file, page=PageFlags(top_k=top_k),
                like=LikeFlags(), search=SearchFlags(), rerank=RerankFlags(),
            )  # fmt: skip

    def recall(self, top_k):
        return None


class Vectors:
    """Given vectors, (q, d), answered by index.search()."""

    def __init__(self, case, index, vectors):
        self.case, self.index, self.vectors = case, index, vectors.astype(np.float32)

    def __len__(self):
        return len(self.vectors)

    def ask(self, first, batch, top_k):
        self.index.search(self.vectors[first] if batch == 1 else self.vectors[first : first + batch], top_k=top_k)

    def recall(self, top_k):
        """Return the mean share of the certified hits that are found."""
        pairs = zip(
            self.index.search(self.vectors, top_k=top_k),
            self.index.search(self.vectors, top_k=top_k, exact=True),
            strict=True,
        )
        shares = [
            len({hit.id for hit in found.hits} & {hit.id for hit in exact.hits}) / max(len(exact.hits), 1)
            for found, exact in pairs
        ]
        return float(np.mean(shares))


def measure(clock, source, batch, top_k, options):
    """Return medians of the parts and of the whole, ms a query, in batches of this size."""
    rows, generation = [], embedded_store_of(source.index).snapshot.source
    for repeat in range(options.queries + 1):
        first, tries = repeat * batch % max(len(source) - batch, 1), []
        for _ in range(options.least_of):
            if options.forget:
                generation.recent = RecentDocuments()
            clock.reset()
            begin = clock.now()
            source.ask(first, batch, top_k)
            whole = clock.now() - begin
            clock.seconds["rest"] = whole - sum(clock.seconds.values())
            tries.append([value / batch * 1e3 for value in (*clock.seconds.values(), whole)])
        if repeat:  # the first reads, checks and compiles
            rows.append(np.min(tries, axis=0).tolist())
    *parts, whole = np.median(rows, axis=0).tolist()
    quartiles = np.quantile(rows, [0.25, 0.75], axis=0)[:, -1].tolist()
    named = dict(zip(PARTS, parts, strict=True))
    sizes = {"case": source.case, "top_k": top_k, "batch": batch, "rows": len(rows)}
    return sizes | named | {"sum": sum(parts), "whole": whole, "quartiles": quartiles}


def plot(rows, file):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    _, panels = plt.subplots(len(rows), 1, figsize=(8, 1.7 * len(rows) + 0.8), squeeze=False)
    for axes, row in zip(panels[:, 0], rows, strict=True):
        left = 0.0
        for part, colour in zip(PARTS, COLOURS, strict=True):
            axes.barh(0, row[part], left=left, color=colour, edgecolor="white", label=part)
            if row[part] > 0.06 * row["sum"]:
                axes.text(left + row[part] / 2, 0, f"{row[part]:.2f}", ha="center", va="center")
            left += row[part]
        axes.set(yticks=[], xlim=(0, row["sum"]))
        axes.set_title(
            f"{row['case']}, " + ("one query" if row["batch"] == 1 else f"batch of {row['batch']}"), loc="left"
        )
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels[-1][0].set_xlabel("ms a query, medians")
    handles, labels = panels[0][0].get_legend_handles_labels()
    panels[0][0].legend(handles, labels, frameon=False, ncols=len(PARTS), loc="lower right", bbox_to_anchor=(1, 1.2))
    plt.tight_layout()
    plt.savefig(file, dpi=150)


def opened(stack, path, kind):
    """Return the index, open until the stack ends, with an engine of this kind."""
    index = stack.enter_context(mvindex.open(path))
    if index.info().kind != kind:
        index.admin.build(kind)
    return index


def sources_of(options, stack):
    """Yield what is asked."""
    if options.tiny:
        yield from tiny_sources(stack)
    elif options.corpus:
        from scale_parts.indexes import cached

        for corpus in options.corpus:
            path, vectors = cached(corpus, options.documents, 8, options.data, dim=options.dim)
            yield Vectors(f"{corpus} {options.kind}", opened(stack, path, options.kind), vectors)
    else:
        path, questions = cached_squad(options.data)
        prepare_queries(load_encoder("minilm"))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        yield Questions("mvindex query", opened(stack, path, options.kind), questions, folder)


def tiny_sources(stack):
    """Yield questions, encoded by a function, and vectors, over a few generated documents."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    (views,) = view_chunks(TINY_DOCUMENTS, 4, TINY_DIM)
    numbers = {f"text {number}": number for number in range(TINY_DOCUMENTS)}

    def encoded(texts):
        return views[[numbers[text.strip()] for text in texts]]

    encoder = mvindex.CallableEncoder(
        encoded, query_function=lambda texts: encoded(texts)[:, 0], name="tiny", dim=TINY_DIM
    )
    index = stack.enter_context(mvindex.create(folder / "tiny.mvx", encoder=encoder, lexical="none"))
    index.add(mvindex.Document(str(number), text) for text, number in numbers.items())
    yield Questions("mvindex query", index, [Question(text, text) for text in numbers], folder)
    yield Vectors("vectors exact", index, views[:, 0])


def main():
    parser = harness.parser(__doc__, batches=[1, 64], top_k=[10], json=False)
    parser.add_argument("--data", type=Path, default=harness.COLLECTIONS, help="a folder that holds squad/")
    parser.add_argument(
        "--corpus", nargs="+", choices=["gauss", "transplants", "seeded"], help="given vectors of these stand-ins"
    )
    parser.add_argument("--documents", type=int, default=100_000, help="of a stand-in")
    parser.add_argument("--dim", type=int, help="dimensions of a stand-in, fewer than it has")
    parser.add_argument("--kind", default="exact", help="the engine kind")
    parser.add_argument("--queries", type=int, default=64, help="number of single queries, and of batches")
    parser.add_argument(
        "--least-of", type=int, default=1, help="times that each is asked; the least time of each part counts"
    )
    parser.add_argument("--forget", action="store_true", help="forget the documents shown, so that all are read")
    parser.add_argument("--clock", choices=list(CLOCKS), default="cpu")
    parser.add_argument("--tiny", action="store_true", help="a few generated documents, in seconds")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.tiny:
        options.queries, options.batches = 4, [1, 8]
    kernels.expect_work()  # a process that has run for a while
    clock, rows = Clock(CLOCKS[options.clock]), []
    with contextlib.ExitStack() as stack:
        for source in sources_of(options, stack):
            clock.wrap_search(source.index)
            for top_k in options.top_k:
                recall = source.recall(top_k)
                measured = [measure(clock, source, batch, top_k, options) for batch in options.batches]
                rows += [row | {"recall": recall} for row in measured]
    if options.plot:
        plot(rows, options.plot)
    if options.json:
        print("\n".join(json.dumps(row) for row in rows))
        return
    print_rows(rows)
    print(f"{options.clock} ms a query")


def print_rows(rows):
    names = ("top_k", "batch", *PARTS, "sum", "whole", "recall")
    print(f"{'case':24s}", "  ".join(f"{name:>7s}" for name in names))
    for row in rows:
        cells = (f"{row[name]:7d}" if isinstance(row[name], int) else f"{row[name] or np.nan:7.3f}" for name in names)
        print(f"{row['case']:24s}", "  ".join(cells))


if __name__ == "__main__":
    main()
