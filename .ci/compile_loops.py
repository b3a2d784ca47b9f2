"""Compile the loops of searches, once on this machine: tests in many processes would all do it at the same time."""

import tempfile
from pathlib import Path

import numpy as np

import mvindex
from mvindex.kernels import expect_work
from mvindex.testing import unit

DOCUMENTS, DIM = 400, 16
vectors = unit(np.random.default_rng(0).standard_normal((DOCUMENTS, 4, DIM))).astype(np.float32)
# Short texts together are split without compiled loops.
documents = [mvindex.Document(str(number), f"oil and water {number} " * 20) for number in range(DOCUMENTS)]


def search(index: mvindex.Index) -> None:
    """Search by vectors, one and many, and by words."""
    for scoring in ("max", "drpq"):
        index.search(vectors[0, 0], scoring=scoring)
        index.search(vectors[:9, 0], scoring=scoring, filter={"n": {"lt": 9}})
    index.search("water or oil", mode="lexical")
    index.warm_up()


expect_work()
with tempfile.TemporaryDirectory() as folder:
    for kind, dtype in (("exact", "fp32"), ("exact", "fp16"), ("graph", "fp16"), ("ivf-pq", "fp16")):
        with mvindex.create(Path(folder) / f"{kind}-{dtype}.mvx", dim=DIM, dtype=dtype, lexical="english") as index:
            index.add_views(documents[:300], vectors[:300])
            index.admin.build(kind)
            search(index)
            # Engines take in what comes later, and are mended by a compaction.
            index.add_views(documents[300:], vectors[300:])
            index.delete(ids=[str(number) for number in range(0, 100, 3)])
            search(index)
            index.admin.compact()
            search(index)
