"""Code that a careful user of pymilvus writes without mvindex: the same rows, the same three steps of a query."""

import contextlib

import numpy as np
from milvus_parts.corpus import VIEWS, documents_of
from pymilvus import DataType, MilvusClient

ROWS = 8_192


class Bare:
    """Two collections: views, and a record a document."""

    def __init__(self, uri, dim):
        self._client = client = MilvusClient(uri, dedicated=True)
        self._dim = dim
        for name, width in (("bare_views", dim), ("bare_records", 2)):
            with contextlib.suppress(Exception):
                client.drop_collection(name)
            schema = MilvusClient.create_schema(auto_id=False)
            schema.add_field("pk", DataType.INT64, is_primary=True)
            schema.add_field("doc", DataType.INT64)
            if width == 2:
                schema.add_field("id", DataType.VARCHAR, max_length=4096)
                schema.add_field("text", DataType.VARCHAR, max_length=65_535)
            schema.add_field("vec", DataType.FLOAT_VECTOR, dim=width)
            index = client.prepare_index_params()
            index.add_index(field_name="vec", index_type="FLAT", metric_type="IP")
            client.create_collection(name, schema=schema, index_params=index, consistency_level="Session")

    def add(self, numbers, rows):
        """Upsert, as a run that may be repeated needs."""
        flat = rows.reshape(-1, self._dim)
        keys = [number * VIEWS + slot for number in numbers for slot in range(VIEWS)]
        for begin in range(0, len(keys), ROWS):
            at = slice(begin, begin + ROWS)
            data = [{"pk": pk, "doc": pk // VIEWS, "vec": row} for pk, row in zip(keys[at], flat[at], strict=True)]
            self._client.upsert("bare_views", data)
        zero = np.zeros(2, dtype=np.float32)
        pairs = zip(numbers, documents_of(numbers), strict=True)
        records = [{"pk": number, "doc": number, "id": each[0], "text": each[1], "vec": zero} for number, each in pairs]
        self._client.upsert("bare_records", records)

    def flush(self):
        """Flush to files, which Lite searches far faster."""
        self._client.flush("bare_views")

    def search(self, query, top_k):
        """Return the ids of the documents: search, records, all views of the candidates, scored in float64."""
        options = {"consistency_level": "Session"}
        params = {"metric_type": "IP", "params": {}}
        [hits] = self._client.search(
            "bare_views", [query], anns_field="vec", limit=top_k * VIEWS, search_params=params, **options
        )
        found = list(dict.fromkeys(int(pk) // VIEWS for pk in hits.ids))[:top_k]
        inside = f"pk in {found}"
        records = self._client.query("bare_records", filter=inside, output_fields=["pk", "id", "text"], **options)
        keys = [number * VIEWS + slot for number in found for slot in range(VIEWS)]
        rows = self._client.query("bare_views", filter=f"pk in {keys}", output_fields=["pk", "vec"], **options)
        scores = dict.fromkeys(found, -np.inf)
        vectors = np.array([row["vec"] for row in rows], dtype=np.float64) @ query.astype(np.float64)
        for row, score in zip(rows, vectors.tolist(), strict=True):
            document = int(row["pk"]) // VIEWS
            scores[document] = max(scores[document], score)
        ids = {int(record["pk"]): record["id"] for record in records}
        return [ids[number] for number in sorted(found, key=lambda each: -scores[each])]

    def close(self):
        self._client.close()
