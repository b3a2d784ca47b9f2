"""Codes of ivf-pq: of views, and of what views differ from their centroids by; recall@10 of documents of both.

    python bench/codes.py --data DATA [--documents 62500] [--nlist 2048]

Views come from the stand-in `gauss` (scale_parts/passages.py). A document is found if one of its views is among the
k_factor x 10 best by their codes, in the nprobe nearest lists; what is found is scored by the stored views later.
Prints a row for each codes and nprobe: recall by k_factor, CPU ms of a query in a batch, CPU microseconds to add a
view.
"""

import argparse
import json
import time
from pathlib import Path

import faiss
import numpy as np
import tiny
from scale_parts.passages import Passages

from mvindex_connectors.engines.faiss_ivf import ivf_of, new_ivf, train

QUESTIONS, TOP_K = 256, 10
K_FACTORS = (5, 10, 15, 30, 60, 120)
SHARES = (64, 32, 16, 8)
BLOCK = 1 << 16


def nearest(views, queries, per_document):
    """Return the best documents of each query by their best view, (q, TOP_K)."""
    parts = []
    for begin in range(0, len(views), BLOCK * per_document):
        scores = queries @ views[begin : begin + BLOCK * per_document].T
        parts.append(scores.reshape(len(queries), -1, per_document).max(axis=2))
    return np.argpartition(-np.concatenate(parts, axis=1), TOP_K, axis=1)[:, :TOP_K]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=62_500)
    parser.add_argument("--views", type=int, default=8)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--nlist", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = tiny.parse(parser, documents=1000, views=2, dim=16, nlist=64, data=tiny.DATA)
    passages = Passages(options.documents, options)
    views = np.concatenate([passages.views(block) for block in range(passages.blocks)]).reshape(-1, options.dim)
    queries = passages.questions(QUESTIONS)[0].astype(np.float32)
    truth = nearest(views, queries, options.views)
    for of_difference in (False, True):
        index = new_ivf(faiss, "ivf-pq", options.dim, options.nlist)
        lists = faiss.downcast_index(ivf_of(faiss, index))
        lists.by_residual = of_difference
        train(faiss, index, views[:: max(1, len(views) // (64 * options.nlist))])
        began = time.process_time()
        index.add(views)
        added_us = 1e6 * (time.process_time() - began) / len(views)
        for share in SHARES:
            lists.nprobe = max(1, options.nlist // share)
            recalls, cpu_ms = [], []
            for k_factor in K_FACTORS:
                began = time.process_time()
                _, rows = index.search(queries, k_factor * TOP_K)
                cpu_ms.append(round(1000 * (time.process_time() - began) / len(queries), 3))
                pairs = zip(rows // options.views, truth, strict=True)
                recalls.append(round(float(np.mean([np.isin(best, found).mean() for found, best in pairs])), 4))
            row = {"codes": "differences" if of_difference else "views", "views": len(views), "nlist": options.nlist}
            row |= {"nprobe": lists.nprobe, "k_factor": K_FACTORS, "recall": recalls, "cpu_ms": cpu_ms}
            print(json.dumps(row | {"add_cpu_us": round(added_us, 2)}), flush=True)


if __name__ == "__main__":
    main()
