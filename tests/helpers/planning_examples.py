"""The collections that the tests plan for."""

import json
from pathlib import Path

from mvindex.measure.planning.sizes import Collection
from mvindex.store.views import ViewType

GIB = 1 << 30
SCHEMAS = Path(__file__).parents[2] / "schemas" / "records"


def schema(name):
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text())


def collection(documents=1000, views=8, dim=8, view_type=ViewType.FP16, text_bytes=600):
    return Collection(documents=documents, views=views, dim=dim, view_type=view_type, text_bytes=text_bytes)
