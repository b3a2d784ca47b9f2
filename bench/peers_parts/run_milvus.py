"""Milvus Lite over views, flat or HNSW with its defaults (M 16, efConstruction 200): over-fetched, and group_by.

Its server runs in this process, so that its memory and its processor time are counted.
"""

import logging
import time

import faiss  # noqa: F401 - loaded late else, and counted as memory of the collection
import milvus_lite.adapter.grpc.server  # noqa: F401 - so is its server
from measuring import RISING, Setting, distinct
from pymilvus import DataType, MilvusClient, MilvusException

PACKAGES = ("pymilvus", "milvus-lite", "faiss-cpu")
ROWS = 5000
INDEX_TIMEOUT_S = 3000

logging.getLogger("pymilvus").setLevel(logging.CRITICAL)


def build(data, work, variant):
    views, document = data.views, data.document
    client = MilvusClient(str(work / "views.db"))
    schema = client.create_schema(auto_id=False)
    schema.add_field("pk", DataType.INT64, is_primary=True)
    schema.add_field("document", DataType.INT64)
    schema.add_field("view", DataType.FLOAT_VECTOR, dim=views.shape[1])
    client.create_collection("views", schema=schema, consistency_level="Strong")
    for begin in range(0, len(views), ROWS):
        rows = range(begin, min(begin + ROWS, len(views)))
        client.insert("views", [{"pk": row, "document": int(document[row]), "view": views[row]} for row in rows])
    client.flush("views")
    index = client.prepare_index_params()
    index.add_index(field_name="view", index_type=variant, metric_type="IP")
    try:
        client.create_index("views", index)
    except MilvusException as err:
        # While its server builds, it may miss the client's pings; the client then retries, and logs this.
        if "already exists" not in str(err):
            raise
    wait_for_rows(client, variant, len(views))
    client.load_collection("views")
    client.close()


def wait_for_rows(client, variant, expected):
    """Wait for all rows to be indexed; SystemExit where they never are: some names are accepted and never built."""
    ends = time.monotonic() + INDEX_TIMEOUT_S
    while int((held := client.describe_index("views", "view")).get("indexed_rows", -1)) != expected:
        if time.monotonic() > ends:
            raise SystemExit(f"{variant} does not have {expected} views after {INDEX_TIMEOUT_S} s: {held}")
        time.sleep(1)


def open(_, work, __):
    client = MilvusClient(str(work / "views.db"))
    client.load_collection("views")
    return client


def asked(client, label, *, limit, ef=None, **options):
    def many(questions, k):
        params = {} if ef is None else {"ef": max(ef, limit(k))}
        expected = {"params": params, "metric_type": "IP"}
        found = client.search(
            "views", list(questions), limit=limit(k), search_params=expected, output_fields=["document"], **options
        )
        return [distinct([hit["entity"]["document"] for hit in hits], k) for hits in found]

    return Setting(label=label, one=lambda question, k: many(question[None], k)[0], many=many)


def settings(client, variant):
    yield [asked(client, "fetch 2k, defaults", limit=lambda k: 2 * k)]
    yield [asked(client, "fetch 8k, defaults", limit=lambda k: 8 * k)]
    yield [asked(client, "group_by, defaults", limit=lambda k: k, group_by_field="document")]
    if variant == "HNSW":
        yield [asked(client, f"fetch 8k, ef {ef}", limit=lambda k: 8 * k, ef=ef) for ef in RISING]
