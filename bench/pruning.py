"""Measure the bytes that leaving out near-duplicate views saves, and its cost in recall, for a range of distances EPS.

    python bench/pruning.py --data DATA [--eps 0,0.05,0.1] [--questions N] [--plot FILE] [--json]

SQuAD's passages as the packaged MiniLM has them (family `snippets`, fp16) and its questions, all or N drawn from them
with a seed. The views are encoded once; for each EPS they go into an index made with prune_views=EPS, by the public
API, and the exact search answers.
R@k is the share of questions whose gold passage is among the first k, with the central 95 % of 10,000 bootstrap
samples of the questions; `lost` is R@k of all views less that of the kept ones, in points, by paired samples; the
largest fall of a gold passage's score stands beside EPS, which bounds it (questions are unit vectors).
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import tiny
from vectors import cached_squad

import mvindex
from mvindex.kernels.score import decode
from mvindex.store.embedded import EmbeddedStore

EPS = "0,0.05,0.1,0.2,0.3,0.4,0.5,0.6"
CUTOFFS = (1, 5, 20)
SAMPLES, SHARE = 10_000, (2.5, 97.5)
BATCH = 256


class Collection:
    """Documents with all their views, and questions as vectors with their gold passages' ids."""

    def __init__(self, data, num_questions):
        path, questions = cached_squad(data)
        if num_questions:
            drawn = np.random.default_rng(0).choice(len(questions), num_questions, replace=False)
            questions = [questions[number] for number in np.sort(drawn)]
        with mvindex.open(path) as index:
            self.documents = list(index)
            self.queries = np.concatenate(
                [
                    index.encode_queries([question.text for question in questions[begin : begin + BATCH]])
                    for begin in range(0, len(questions), BATCH)
                ]
            )
        store = EmbeddedStore(path)
        rows, self.starts = store.snapshot.views.fetch(np.flatnonzero(store.snapshot.alive))
        store.close()
        self.rows = decode(rows)
        number = {document.id: n for n, document in enumerate(self.documents)}
        self.gold = np.array([number[question.passage_id] for question in questions])
        self.gold_ids = [question.passage_id for question in questions]

    def add_to(self, index):
        index.add_views(self.documents, np.split(self.rows, self.starts[1:-1]))

    def gold_scores(self, starts, rows):
        """Return each question's score of its gold passage by best view."""
        counts = np.diff(starts)[self.gold]
        ends = np.cumsum(counts)
        at = np.arange(ends[-1]) + np.repeat(starts[self.gold] - ends + counts, counts)
        scores = np.einsum("ij,ij->i", rows[at], np.repeat(self.queries, counts, axis=0), dtype=np.float64)
        return np.maximum.reduceat(scores, ends - counts)


def ranks(index, collection):
    """Return the rank from 1 of each question's gold passage (more than all cut-offs: not found)."""
    found = np.full(len(collection.gold_ids), max(CUTOFFS) + 1)
    for begin in range(0, len(found), BATCH):
        for number, result in enumerate(index.search(collection.queries[begin : begin + BATCH], max(CUTOFFS)), begin):
            ids = [hit.id for hit in result.hits]
            if collection.gold_ids[number] in ids:
                found[number] = ids.index(collection.gold_ids[number]) + 1
    return found


def row_of(eps, size, found, before):
    """Return a row of the table; size: views and bytes; found and before: ranks with and without pruning."""
    views, size_bytes = size
    row = {"eps": eps, "views": views, "bytes": size_bytes}
    rng = np.random.default_rng(0)
    total = len(found)
    for k in CUTOFFS:
        hits, hits_before = found <= k, before <= k
        share = hits.mean()
        # Resampling 0/1 outcomes with replacement is drawing from the binomial; pairs of them, from the multinomial.
        low, high = np.percentile(rng.binomial(total, share, SAMPLES) / total, SHARE)
        row[f"R@{k}"] = [round(100 * value, 2) for value in (share, low, high)]
        lost, won = (hits_before & ~hits).mean(), (hits & ~hits_before).mean()
        drawn = rng.multinomial(total, [lost, won, 1 - lost - won], SAMPLES)
        low, high = np.percentile((drawn[:, 0] - drawn[:, 1]) / total, SHARE)
        row[f"lost@{k}"] = [round(100 * value, 2) for value in (lost - won, low, high)]
    return row


def at_ingest(collection, distances, folder):
    """Yield a row for each distance, None first: all views."""
    before = scores = None
    for number, eps in enumerate([None, *distances]):
        path = folder / f"{number}.mvx"
        with mvindex.create(path, dim=collection.rows.shape[1], prune_views=eps) as index:
            collection.add_to(index)
            found = ranks(index, collection)
            views = index.info().views
        store = EmbeddedStore(path)
        kept, starts = store.snapshot.views.fetch(np.arange(store.snapshot.num_rows))
        store.close()
        its_scores = collection.gold_scores(starts, decode(kept))
        before, scores = (found, its_scores) if before is None else (before, scores)
        row = row_of(eps, (views, views * kept.shape[1] * kept.itemsize), found, before)
        yield row | {"largest_fall": round(float((scores - its_scores).max()), 4)}


def show(row, whole):
    shown = [
        "all" if row["eps"] is None else f"{row['eps']:g}",
        f"{row['views']:,}",
        f"{row['bytes'] / 1e6:.2f}",
        f"{100 * row['bytes'] / whole['bytes']:.1f} %",
        *("{:.2f} ({:.2f}-{:.2f})".format(*row[f"R@{k}"]) for k in CUTOFFS),
        *("{:+.2f} ({:+.2f} {:+.2f})".format(*row[f"lost@{k}"]) for k in CUTOFFS),
        f"{row['largest_fall']:.3f}",
    ]
    print("| " + " | ".join(shown) + " |")


def plot(rows, file):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(7, 4.5))
    share = [100 * row["bytes"] / rows[0]["bytes"] for row in rows]
    for k, colour in zip(CUTOFFS, ("C3", "C0", "0.4"), strict=True):
        mid, low, high = np.array([row[f"R@{k}"] for row in rows]).T
        axes.errorbar(share, mid, [mid - low, high - mid], fmt="o-", capsize=3, color=colour, label=f"R@{k}")
    for row, at, before in zip(rows[1:], share[1:], share, strict=False):
        if before - at < 1:
            continue  # on top of the point before
        axes.annotate(f"{row['eps']:g}", (at, row["R@1"][0]), (0, -16), textcoords="offset points", ha="center")
    axes.set(xlabel="bytes of views, % of all (at the points: EPS)", ylabel="questions with the gold passage, %")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    plt.tight_layout()
    plt.savefig(file, dpi=150)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--eps", default=EPS)
    parser.add_argument("--questions", type=int, default=0, help="0: all")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(parser, data=tiny.DATA, eps="0.3", questions=20)
    distances = [float(part) for part in options.eps.split(",")]
    collection = Collection(options.data, options.questions)
    rows = []
    if not options.json:
        heads = ["EPS", "views", "MB", "share", *(f"R@{k}" for k in CUTOFFS), *(f"lost@{k}" for k in CUTOFFS)]
        print("| " + " | ".join([*heads, "largest fall"]) + " |\n|" + " --- |" * (len(heads) + 1))
    with tempfile.TemporaryDirectory() as name:
        for row in at_ingest(collection, distances, Path(name)):
            rows.append(row)
            print(json.dumps(row)) if options.json else show(row, rows[0])
            sys.stdout.flush()
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
