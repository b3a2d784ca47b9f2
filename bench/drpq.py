"""DRPQ scoring: a proven stop and a fused scan against the paper's fixed depth; and whether the aggregate helps.

    python bench/drpq.py --documents 50000 --data DATA [--plot FILE] [--json]

DRPQ scores a document by the softmax mean of its view scores. All sides run in one process on one thread, alternated
run by run; CPU milliseconds a query, medians of --repeats runs.
  fixed  the paper's two steps on Faiss IndexFlatIP: the documents of the 1,000 k best view hits are scored, k being
         the views of a document (the mean, where documents differ)
  stop   the same index, read until no unseen view can matter: the mean never exceeds the best view
  scan   mvindex' scan with the aggregate and its bound fused in; no index
`scored`: documents scored a query, the mean, rounds that proved nothing included; `scanned`: share of queries that
`stop` gave up and left to the scan; `same`: share of queries whose list is the exact one; `proven`: share certified.
stop and scan must give the same certified documents, or the run fails. Seeded vectors (bench/vectors.py).
With --data (a folder that holds squad/) the same on SQuAD's passages by the packaged MiniLM, and the share of its
questions whose passage is among the first 1, 5 and 20: by best view, and by the mean at several temperatures. That
encoder was not trained for the mean.
"""

import os
from dataclasses import replace
from pathlib import Path

import harness

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402 - the thread counts must be set first
from vectors import cached_index, cached_squad  # noqa: E402

import mvindex  # noqa: E402
from mvindex.engines import open_scan  # noqa: E402
from mvindex.kernels.score import Aggregate, Scoring  # noqa: E402
from mvindex.measure.metrics import Evaluation  # noqa: E402
from mvindex.search import exact  # noqa: E402
from mvindex.search.local import EngineCache  # noqa: E402
from mvindex.search.ranking import Engines, Request  # noqa: E402
from mvindex.search.views import search_documents  # noqa: E402
from mvindex.store.embedded import EmbeddedStore  # noqa: E402

HITS_PER_VIEW = 1000
SINGLE_QUERIES = 8
CUTOFFS = (1, 5, 20)


class Work:
    """Counts, by wrapping the real functions, what the searches between two reset() calls did."""

    def __init__(self, scan):
        self._scan, self._score_pairs = scan, exact.score_pairs
        exact.score_pairs = self._scored
        self.reset()

    def reset(self):
        self.scored = self.scanned = 0

    def candidates(self, snapshot, queries, *request):
        self.scanned += len(queries)
        return self._scan.candidates(snapshot, queries, *request)

    def _scored(self, views, queries, pairs, scoring):
        self.scored += len(pairs.doc_rows)
        return self._score_pairs(views, queries, pairs, scoring)


def compare(data, path, queries, options):
    """Yield a row for each temperature, top_k and batch; the built engine is removed from the index."""
    with mvindex.open(path) as index:
        index.admin.build("flat")
        try:
            yield from compared(data, path, queries, options)
        finally:
            index.admin.build("exact")


def compared(data, path, queries, options):
    store = EmbeddedStore(path)
    snapshot, work = store.snapshot, Work(open_scan())
    depth = HITS_PER_VIEW * round(snapshot.views.num_views / snapshot.num_rows)
    flat, scan_only = Engines(scan=work, ranking=EngineCache().open(snapshot)), Engines(scan=work)
    for temperature in map(float, options.temperatures.split(",")):
        scoring = Scoring(Aggregate.DRPQ, temperature)
        for top_k in (10, 100):
            exact = Request(top_k=top_k, allowed=snapshot.alive, num_allowed=snapshot.num_documents, scoring=scoring)
            sides = {"fixed": (flat, replace(exact, depth=depth)), "stop": (flat, exact), "scan": (scan_only, exact)}
            for batch in (len(queries), 1):
                asked = queries if batch > 1 else queries[:SINGLE_QUERIES]
                batches = [asked[at : at + batch] for at in range(0, len(asked), batch)]
                row = {"data": data, "depth": depth, "T": temperature, "top_k": top_k, "batch": batch}
                yield row | alternated(snapshot, batches, sides, work, options.repeats)
    store.close()


def alternated(snapshot, batches, sides, work, repeats):
    """Return times and counts of each side; the first round warms up and is counted."""
    num_queries = sum(map(len, batches))
    times, found, counts = {name: [] for name in sides}, {}, {}
    for repeat in range(repeats + 1):
        for name, (engines, request) in list(sides.items())[:: 1 if repeat % 2 else -1]:
            work.reset()
            seconds, found[name] = harness.timed(
                lambda engines=engines, request=request: [
                    one for batch in batches for one in search_documents(snapshot, engines, batch, request)
                ]
            )
            counts[name] = {"scored": work.scored / num_queries, "scanned": work.scanned / num_queries}
            if repeat:
                times[name].append(seconds / num_queries * 1e3)
    exact = [ranking.rows for ranking in found["scan"]]
    result = {}
    for name, rankings in found.items():
        same = np.mean([np.array_equal(one.rows, rows) for one, rows in zip(rankings, exact, strict=True)])
        proven = np.mean([one.exact for one in rankings])
        assert name == "fixed" or same == proven == 1
        ms, quartiles = np.median(times[name]), np.quantile(times[name], [0.25, 0.75])
        result[name] = {"ms": ms, "quartiles": quartiles.tolist(), **counts[name], "same": same, "proven": proven}
    return result


def quality(path, questions, vectors, temperatures):
    """Return R@k by best view, and by DRPQ's mean at each temperature."""
    with mvindex.open(path) as index:
        chosen = [("max", None), *(("drpq", temperature) for temperature in temperatures)]
        for scoring, temperature in chosen:
            evaluation = Evaluation(CUTOFFS)
            for begin in range(0, len(questions), 256):
                part = slice(begin, begin + 256)
                results = index.search(vectors[part], CUTOFFS[-1], scoring=scoring, temperature=temperature)
                for question, result in zip(questions[part], results, strict=True):
                    assert result.exact
                    evaluation.add(replace(question, answers=None), result)
            yield {"data": "squad", "scoring": scoring, "T": temperature, **evaluation.report()["gold"]}


def plot(rows, file):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    best, *means = (row for row in rows if "scoring" in row)
    _, axes = plt.subplots(figsize=(7, 4.5))
    for number, cutoff in enumerate(CUTOFFS):
        name = f"R@{cutoff}"
        axes.plot([row["T"] for row in means], [100 * row[name] for row in means], "o-", color=f"C{number}", label=name)
        axes.axhline(100 * best[name], color=f"C{number}", linestyle="--")
    axes.set(xscale="log", xlabel="temperature of DRPQ's mean (dashed: best view)", ylabel="percent of SQuAD questions")
    axes.set_xticks([row["T"] for row in means], [f"{row['T']:g}" for row in means])
    axes.minorticks_off()
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False)
    plt.tight_layout()
    plt.savefig(file, dpi=150)


def rows_of(options):
    path, queries = cached_index(options.documents, options.views, options.dim)
    yield from compare("synthetic", path, queries[: options.queries], options)
    if not options.data:
        return
    path, questions = cached_squad(options.data)
    questions = questions[: options.questions]
    with mvindex.open(path) as index:
        texts = [question.text for question in questions]
        vectors = np.concatenate([index.encode_queries(texts[at : at + 256]) for at in range(0, len(texts), 256)])
    spread = np.linspace(0, len(vectors) - 1, options.queries).astype(int)
    yield from compare("squad", path, vectors[spread], options)
    yield from quality(path, questions, vectors, map(float, options.quality_temperatures.split(",")))


def line(row):
    if "scoring" in row:
        shares = "  ".join(f"R@{cutoff} {100 * row[f'R@{cutoff}']:.1f}" for cutoff in CUTOFFS)
        return f"{row['data']:9s} {row['scoring']:4s} T {row['T'] or '-':<5}  {shares}"
    fixed, stop, scan = (row[name] for name in ("fixed", "stop", "scan"))
    sides = "  ".join(
        f"{name} {row[name]['ms']:8.2f} ms {row[name]['scored']:8.0f}" for name in ("fixed", "stop", "scan")
    )
    head = f"{row['data']:9s} T {row['T']:<4g} k {row['top_k']:3d} batch {row['batch']:3d}"
    share = f"same {fixed['same']:.2f} proven {fixed['proven']:.2f} | stop scanned {stop['scanned']:.2f}"
    return f"{head} | {sides} scored | fixed: {share}"


def main():
    parser = harness.parser(
        __doc__,
        documents=50_000,
        views=8,
        dim=384,
        queries=64,
        repeats=7,
        temperatures="1,0.2,0.05",
        quality_temperatures="1,0.2,0.05,0.02,0.01",
        json=False,
    )
    parser.add_argument("--questions", type=int, help="of SQuAD; all by default")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--plot", type=Path)
    options = harness.parse(
        parser,
        documents=600,
        views=2,
        dim=16,
        queries=8,
        repeats=1,
        questions=20,
        temperatures="0.2",
        quality_temperatures="0.2",
        data=harness.DATA,
    )
    if options.plot and not options.data:
        parser.error("--plot shows quality on SQuAD: give --data too")
    rows = []
    for row in rows_of(options):
        rows.append(row)
        harness.show(row, options.json, line)
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
