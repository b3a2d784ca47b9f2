"""A machine with made-up rates, worked by hand, and the collections that the tests plan for."""

import json
from pathlib import Path

from mvindex.planning.rates import Rates, Span
from mvindex.planning.sizes import Collection
from mvindex.store.views import ViewType

GIB = 1 << 30
SCHEMAS = Path(__file__).parents[2] / "schemas" / "records"


def schema(name):
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text())


def fixed(seconds):
    """The same in all measurements."""
    return Span(seconds, seconds, seconds)


def made_rates(**changes):
    """A nanosecond for nearly everything."""
    kinds = ("exact", "flat", "hnsw", "ivf-flat", "ivf-sq8", "ivf-pq", "ivf-rabitq")
    one = fixed(1e-9)
    given = {
        "dim": 8,
        "threads": 2,
        "scan": "native int8 (AVX-512 VNNI)",
        "scans": {f"{kind} {mode}": one for kind in kinds for mode in ("alone", "batch")},
        "adds": {kind: one for kind in ("flat", *kinds[3:])},
        **dict.fromkeys(("read_memory", "product", "distance", "distance_batch", "linking"), one),
        **dict.fromkeys(("rescore", "rescore_batch", "write_disk", "read_disk"), one),
        **dict.fromkeys(("overhead", "overhead_batch", "random_read"), fixed(1e-3)),
    }
    return Rates(**(given | changes))


def collection(documents=1000, views=8, dim=8, view_type=ViewType.FP16, text_bytes=600):
    return Collection(documents=documents, views=views, dim=dim, view_type=view_type, text_bytes=text_bytes)
