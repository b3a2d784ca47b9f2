"""The folder that all peers read: views in float32, whose document each is, questions, and the exact answer."""

import json
import shutil

import numpy as np
from scale_parts.indexes import cached
from vectors import CACHE

import mvindex
from mvindex.index import embedded_store_of
from mvindex.kernels.score import decode

ROWS = 16_384
DOCUMENTS = 2048
NUM_BEST = 100


def exported(corpus, documents, num_views, data, dim=None):
    """Return the folder of a stand-in at a size, written when missing; dim: see scale_parts."""
    shape = f"{documents}x{num_views}" if dim is None else f"{documents}x{num_views}x{dim}"
    folder = CACHE / "peers" / "data" / f"{corpus}-{shape}"
    if not (folder / "export.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        path, questions = cached(corpus, documents, num_views, data, dim=dim)
        with mvindex.open(path) as index:
            views = embedded_store_of(index).snapshot.views
            shape, counts = (views.num_views, views.dim), views.counts(0, len(index))
            rows = np.lib.format.open_memmap(folder / "views.npy", mode="w+", dtype=np.float32, shape=shape)
            for begin in range(0, len(rows), ROWS):
                rows[begin : begin + ROWS] = decode(views.read_views(begin, min(begin + ROWS, len(rows))))
        document = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        np.save(folder / "document.npy", document)
        np.save(folder / "questions.npy", questions)
        np.save(folder / "truth.npy", exact(rows, document, questions))
        (folder / "export.json").write_text(json.dumps({"corpus": corpus, "documents": documents}), encoding="utf-8")
    return folder


def exact(rows, document, questions):
    """Return the documents whose best views are the nearest, best first, (q, NUM_BEST): plain products in float64."""
    begins = np.flatnonzero(np.diff(document, prepend=-1))
    best = np.empty((len(questions), len(begins)))
    for first in range(0, len(begins), DOCUMENTS):
        starts = begins[first : first + DOCUMENTS]
        end = begins[first + DOCUMENTS] if first + DOCUMENTS < len(begins) else len(rows)
        scores = questions.astype(np.float64) @ rows[starts[0] : end].astype(np.float64).T
        best[:, first : first + DOCUMENTS] = np.maximum.reduceat(scores, starts - starts[0], axis=1)
    # A question at a time: the orders of all would take as much memory again as their scores.
    return np.stack([np.argsort(-scores, kind="stable")[:NUM_BEST] for scores in best]).astype(np.int32)
