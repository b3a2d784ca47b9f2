"""LanceDB's multivector column, a row a document: MaxSim with one query vector is the best view; cosine, as it asks.

Several query vectors at once are one late-interaction query to it, so there is no batch call.
"""

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import IvfPq, IvfSq
from measuring import Setting

PACKAGES = ("lancedb", "pyarrow")
INDEXES = {"IVF_PQ": IvfPq, "IVF_SQ": IvfSq}
# Search parameters in rising cost: partitions probed, and rescored candidates for each row of the result.
REACHING = ((None, 5), (None, 10), (50, 20), (200, 50))


def build(data, work, variant):
    views = np.asarray(data.views)
    begins = np.flatnonzero(np.diff(data.document, prepend=-1, append=-1)).astype(np.int32)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(views.reshape(-1)), views.shape[1])
    columns = {"id": pa.array(np.arange(len(begins) - 1)), "views": pa.ListArray.from_arrays(begins, rows)}
    table = lancedb.connect(work).create_table("documents", pa.table(columns))
    if variant != "none":
        table.create_index("views", config=INDEXES[variant](distance_type="cosine"))


def open(_, work, __):
    return lancedb.connect(work).open_table("documents")


def asked(table, label, nprobes=None, refine=None, is_exact=False):
    def one(question, k):
        query = (
            table.search(question, vector_column_name="views")
            .distance_type("cosine")
            .limit(k)
            .select(["id", "_distance"])
        )
        query = query if nprobes is None else query.nprobes(nprobes)
        query = query if refine is None else query.refine_factor(refine)
        return (query.bypass_vector_index() if is_exact else query).to_arrow()["id"].to_pylist()

    return Setting(label=label, one=one)


def settings(table, variant):
    if variant == "none":
        yield [asked(table, "brute force", is_exact=True)]
        return
    yield [asked(table, "defaults")]
    yield [
        asked(table, f"nprobes {nprobes or 'default'}, refine_factor {refine}", nprobes, refine)
        for nprobes, refine in REACHING
    ]
