"""Compare lists that are found by groups with lists found by comparing all centroids: seconds, and recall.

    OMP_NUM_THREADS=1 python bench/lists.py --documents 131072 --dim 96 --nlist 16384 --data DATA [--json]

The stand-in `gauss` of scale.py. The centroids are the same, trained by groups; views are added to both quantisers in
turns, a block each. Recall is the share of the first 10 and 100 documents of the certified result among the documents
of the first --hits hits of `ivf-pq`, for each share of the lists. CPU microseconds of a view, CPU milliseconds of a
query, one thread.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import tiny

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import faiss  # noqa: E402 - after the settings of threads
import numpy as np  # noqa: E402 - after the settings of threads
from scale_parts.indexes import cached  # noqa: E402 - after the settings of threads

import mvindex  # noqa: E402 - after the settings of threads
from mvindex.engines.auto import groups_for, sample_size  # noqa: E402 - after the settings of threads
from mvindex.index import embedded_store_of  # noqa: E402 - after the settings of threads
from mvindex_connectors.engines.faiss_files import blocks  # noqa: E402 - after the settings of threads
from mvindex_connectors.engines.faiss_ivf import ivf_of, new_ivf, sample_views, train  # noqa: E402 - as above


def cpu(call, *args, **options):
    """Return what the call returns, and its CPU seconds."""
    begin = time.process_time()
    found = call(*args, **options)
    return found, time.process_time() - begin


def flat_copy(index):
    """Return a copy of an index of inverted lists, trained and empty, that compares all centroids."""
    copy = faiss.clone_index(index)
    ivf = ivf_of(faiss, copy)
    flat = faiss.IndexFlatIP(ivf.d)
    flat.add(faiss.downcast_index(ivf.quantizer).reconstruct_n(0, ivf.nlist))
    ivf.quantizer, ivf.own_fields = flat, False
    copy.referenced_objects = [flat]
    return copy


def searched(index, queries, nprobe, hits):
    """Return the rows of the hits of each query, (q, hits), searched one by one."""
    ivf = ivf_of(faiss, index)
    parameters = faiss.SearchParametersIVF(nprobe=nprobe)
    if isinstance(faiss.downcast_index(ivf.quantizer), faiss.IndexIVF):
        parameters.quantizer_params = faiss.SearchParametersIVF(nprobe=groups_for(nprobe, ivf.nlist))
    parameters = faiss.SearchParametersPreTransform(index_params=parameters)
    return np.concatenate([index.search(query[None], hits, params=parameters)[1] for query in queries])


def measure(options):
    """Yield a row of the building, and one for each share of the lists."""
    path, queries = cached("gauss", options.documents, options.views, options.data, dim=options.dim)
    with mvindex.open(path) as opened:
        snapshot = embedded_store_of(opened).snapshot
        truth = [[int(hit.id) for hit in found.hits] for found in opened.search(queries, top_k=100, exact=True)]
        sample = sample_views([snapshot], sample_size(options.nlist, snapshot.views.num_views))
        grouped = new_ivf(faiss, "ivf-pq", snapshot.views.dim, options.nlist)
        _, trained_s = cpu(train, faiss, grouped, sample)
        indexes = {"groups": grouped, "all": flat_copy(grouped)}
        added_s = dict.fromkeys(indexes, 0.0)
        for rows, views in blocks(snapshot.views, (0, snapshot.num_rows)):
            for name, index in indexes.items():
                added_s[name] += cpu(index.add_with_ids, views, rows)[1]
        num_views, document_rows = snapshot.views.num_views, snapshot.views.document_rows
        us = {f"{name}_us": round(1e6 * seconds / num_views, 1) for name, seconds in added_s.items()}
        yield {"views": num_views, "nlist": options.nlist, "trained_s": round(trained_s, 1), **us}
        for share in options.shares:
            row = {"share": share}
            for name, index in indexes.items():
                found, seconds = cpu(searched, index, queries, max(1, round(share * options.nlist)), options.hits)
                seen = [set(document_rows(each[each >= 0]).tolist()) for each in found]
                for depth in (10, 100):
                    shares = [len(set(best[:depth]) & some) / depth for best, some in zip(truth, seen, strict=True)]
                    row[f"{name}_recall@{depth}"] = round(float(np.mean(shares)), 4)
                row[f"{name}_ms"] = round(1000 * seconds / len(queries), 2)
            yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=131_072)
    parser.add_argument("--views", type=int, default=8)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--nlist", type=int, default=16_384)
    parser.add_argument("--hits", type=int, default=600)
    parser.add_argument("--shares", type=float, nargs="+", default=[1 / 64, 1 / 32, 1 / 16, 1 / 8])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--json", action="store_true", help="one line of JSON a row")
    options = tiny.parse(parser, documents=2100, dim=16, data=tiny.DATA, shares=[1 / 16])
    for row in measure(options):
        print(json.dumps(row) if options.json else "  ".join(f"{name} {value}" for name, value in row.items()))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
