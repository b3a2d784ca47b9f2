"""A machine with made-up rates, worked out by hand, and the collections that the tests plan for."""

import json
from pathlib import Path

from mvindex.measure.planning.layouts import KINDS
from mvindex.measure.planning.rates import Line, Rates
from mvindex.measure.planning.sizes import Collection
from mvindex.store.views import ViewType

GIB = 1 << 30
SCHEMAS = Path(__file__).parents[2] / "schemas" / "records"


def schema(name):
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text())


def made_rates(kinds=KINDS):
    """Return a nanosecond per unit of everything, beside a millisecond per query."""
    return Rates(
        product_s=1e-9,
        build={kind: Line(fixed_s=0.0, per_unit_s=1e-9) for kind in kinds},
        query={kind: Line(fixed_s=1e-3, per_unit_s=1e-9) for kind in kinds},
    )


def collection(documents=1000, views=8, dim=8, view_type=ViewType.FP16, text_bytes=600):
    return Collection(documents=documents, views=views, dim=dim, view_type=view_type, text_bytes=text_bytes)
