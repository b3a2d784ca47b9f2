"""Collections of rows with vectors, as others make them, by pymilvus alone."""

import random

import numpy as np

DIM, DOCUMENTS = 24, 320


def documents(count=DOCUMENTS, seed=17):
    """Return documents as lists of rows: 1 to 6 chunks, fields of documents and of chunks, some of them dynamic."""
    rng = np.random.default_rng(seed)
    made = {}
    for number in range(count):
        doc_id, size = f"doc {number}", int(rng.integers(1, 7))
        made[doc_id] = [
            {
                "doc_id": doc_id,
                "text": f"Chunk {slot} of {number}, which is {'long ' * (slot + 1)}here.",
                "chunk_index": slot,
                "lang": "de" if number % 3 else "en",
                "tags": ["a", f"t{number % 4}"],
                "page": 10 + slot,
                # Dynamic.
                "year": 1900 + number,
                **({"note": {"of": number}} if number % 2 else {}),
                "vector": (rng.standard_normal(DIM) * 3).astype(np.float32).tolist(),
            }
            for slot in range(size)
        ]
    return made


def create(path, made, metric="COSINE", name="chunks", **fields):
    """Make a collection in Milvus Lite as others do; returns its address."""
    insert(str(path), name, made, metric, **fields)
    return f"milvus-lite:{path}?collection={name}"


def insert(uri, name, made, metric, **fields):
    """Make a collection, its keys in another order than its chunks."""
    from milvus_lite.server_manager import server_manager_instance
    from pymilvus import DataType, MilvusClient

    client = MilvusClient(uri)
    try:
        schema = MilvusClient.create_schema(enable_dynamic_field=True)
        schema.add_field("pk", DataType.INT64, is_primary=True)
        schema.add_field("doc_id", DataType.VARCHAR, max_length=64)
        schema.add_field("text", DataType.VARCHAR, max_length=500)
        schema.add_field("chunk_index", DataType.INT64)
        schema.add_field("lang", DataType.VARCHAR, max_length=8)
        schema.add_field("tags", DataType.ARRAY, element_type=DataType.VARCHAR, max_capacity=4, max_length=8)
        schema.add_field("page", DataType.INT64)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM, **fields)
        index = client.prepare_index_params()
        index.add_index("vector", index_type="FLAT", metric_type=metric)
        client.create_collection(name, schema=schema, index_params=index)
        rows = [row for own in made.values() for row in own]
        random.Random(3).shuffle(rows)
        for begin in range(0, len(rows), 1000):
            client.insert(name, [{"pk": pk, **rows[pk]} for pk in range(begin, min(begin + 1000, len(rows)))])
    finally:
        client.close()
        if uri.endswith(".db"):
            # Which close() leaves open, for the rest of this process.
            server_manager_instance.release_server(uri)
