"""Check the capabilities of a Milvus by trying them, on temporary collections of a few rows.

The result decides no search (docs/how-to/milvus.md): it shows users what they could build on themselves, and
which faults
of one version are gone in another.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mvindex.errors import StoreError
from mvindex.records import Floats
from mvindex.search.fusion import Fusion
from mvindex_connectors.milvus.connection import Connection

_DIM, _DOCUMENTS, _VIEWS, _TOP_K = 8, 20, 16, 10
YES = "yes"


def probe(connection: Connection) -> dict[str, str]:
    """Return for each capability "yes", or what this Milvus says or does instead; EngineUnavailable when it is away."""
    return {name: _tried(connection, name, attempt) for name, attempt in _ATTEMPTS.items()}


def _tried(connection: Connection, name: str, attempt: Callable[[Any, str, dict[str, Any]], str]) -> str:
    step = f"trying {name}"
    with _collection(connection) as collection:
        try:
            return connection.call(step, lambda client, **options: attempt(client, collection, options))
        except StoreError as err:
            return "no: " + str(err).removeprefix(f"{connection.address.shown}: {step}: ")


@contextmanager
def _collection(connection: Connection) -> Iterator[str]:
    """Yield the name of a temporary collection, and drop it afterwards."""
    name = f"{connection.address.collection[:150]}_probe_{secrets.token_hex(6)}"
    try:
        yield name
    finally:
        connection.call("dropping a probe", lambda client, **options: client.drop_collection(name, **options))


def _views() -> Floats:
    """Return documents of nearly equal views, (documents, views, dim); lower numbers are better."""
    rng = np.random.default_rng(5)
    angles = np.linspace(0.1, 1.4, _DOCUMENTS)
    centres = np.zeros((_DOCUMENTS, 1, _DIM))
    centres[:, 0, 0], centres[:, 0, 1] = np.cos(angles), np.sin(angles)
    return np.asarray(centres + rng.normal(scale=1e-3, size=(_DOCUMENTS, _VIEWS, _DIM)), dtype=np.float32)


def _query() -> Floats:
    query: Floats = np.eye(1, _DIM, dtype=np.float32)[0]
    return query


def _group_by(client: Any, name: str, options: dict[str, Any]) -> str:
    """Check that grouping by document returns the right number of distinct documents, the best ones, in order."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False)
    schema.add_field("pk", DataType.INT64, is_primary=True)
    schema.add_field("doc", DataType.INT64)
    schema.add_field("vec", DataType.FLOAT_VECTOR, dim=_DIM)
    _make(client, name, schema, ("FLAT", "IP"), options)
    rows = enumerate(_views().reshape(-1, _DIM))
    client.insert(name, [{"pk": pk, "doc": pk // _VIEWS, "vec": row} for pk, row in rows], **options)
    request = {"limit": _TOP_K, "group_by_field": "doc", "output_fields": ["doc"], "consistency_level": "Strong"}
    options = {**request, "search_params": {"metric_type": "IP"}, **options}
    [hits] = client.search(name, [_query()], anns_field="vec", **options)
    found = [int(hit["entity"]["doc"]) for hit in hits]
    return _verdict(found)


def _vectors(type_name: str, dtype: type[np.generic], scale: float, index: tuple[str, str]) -> Any:
    """Return a check that vectors of this type can be stored, indexed and searched."""

    def attempt(client: Any, name: str, options: dict[str, Any]) -> str:
        from pymilvus import DataType

        schema = client.create_schema(auto_id=False)
        schema.add_field("pk", DataType.INT64, is_primary=True)
        schema.add_field("vec", getattr(DataType, type_name), dim=_DIM)
        _make(client, name, schema, index, options)
        rows = [{"pk": pk, "vec": (scale * each[0]).astype(dtype)} for pk, each in enumerate(_views())]
        client.insert(name, rows, **options)
        request = {"limit": _TOP_K, "consistency_level": "Strong", "search_params": {"metric_type": index[1]}}
        [hits] = client.search(name, [(scale * _query()).astype(dtype)], anns_field="vec", **request, **options)
        return _verdict(list(map(int, hits.ids)))

    return attempt


def _max_sim(client: Any, name: str, options: dict[str, Any]) -> str:
    """Check that a document can store its views as an array, searched by the best of them."""
    from pymilvus import DataType
    from pymilvus.client.embedding_list import EmbeddingList

    schema = client.create_schema(auto_id=False)
    schema.add_field("pk", DataType.INT64, is_primary=True)
    view = client.create_struct_field_schema()
    view.add_field("vec", DataType.FLOAT_VECTOR, dim=_DIM)
    schema.add_field("views", DataType.ARRAY, element_type=DataType.STRUCT, struct_schema=view, max_capacity=_VIEWS)
    _make(client, name, schema, ("HNSW", "MAX_SIM_IP"), options, field="views[vec]")
    rows = [{"pk": pk, "views": [{"vec": view} for view in views]} for pk, views in enumerate(_views())]
    client.insert(name, rows, **options)
    request = {"limit": _TOP_K, "consistency_level": "Strong", "search_params": {"metric_type": "MAX_SIM_IP"}}
    query = EmbeddingList()
    query.add(_query())
    [hits] = client.search(name, [query], anns_field="views[vec]", **request, **options)
    return _verdict(list(map(int, hits.ids)))


def _bm25(client: Any, name: str, options: dict[str, Any]) -> str:
    """Check that BM25 of three short texts scores as mvindex does (docs/how-to/hybrid.md)."""
    from pymilvus import DataType, Function, FunctionType

    schema = client.create_schema(auto_id=False)
    schema.add_field("pk", DataType.INT64, is_primary=True)
    schema.add_field("text", DataType.VARCHAR, max_length=100, enable_analyzer=True)
    schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
    made_of = {"input_field_names": ["text"], "output_field_names": ["words"]}
    schema.add_function(Function(name="bm25", function_type=FunctionType.BM25, **made_of))
    k1, b = Fusion().k1, Fusion().b
    parameters = {"bm25_k1": k1, "bm25_b": b}
    _make(client, name, schema, ("SPARSE_INVERTED_INDEX", "BM25"), options, field="words", built=parameters)
    texts = ["oil price", "oil oil war peace", "war"]
    client.insert(name, [{"pk": pk, "text": text} for pk, text in enumerate(texts)], **options)
    request = {"limit": 1, "consistency_level": "Strong", "search_params": {"metric_type": "BM25"}}
    [hits] = client.search(name, ["price"], anns_field="words", **request, **options)
    # One of three documents has the term, once among two; a document has 7 / 3 terms on average.
    score = math.log(1 + 2.5 / 1.5) * (k1 + 1) / (1 + k1 * (1 - b + b * 2 / (7 / 3)))
    found = abs(float(hits[0]["distance"])) if hits else 0.0
    return YES if abs(found - score) < 1e-5 else f"no: a score of {found:.4f} where k1 {k1} and b {b} give {score:.4f}"


def _verdict(found: list[int]) -> str:
    """Return the verdict on the documents of the hits, of which the first numbers are the best."""
    if found == list(range(_TOP_K)):
        return YES
    return f"no: {len(set(found) & set(range(_TOP_K)))} of the {_TOP_K} best documents, {len(found)} hits"


def _make(  # noqa: PLR0913 - a collection takes that many
    client: Any,
    name: str,
    schema: Any,
    index: tuple[str, str],
    options: dict[str, Any],
    field: str = "vec",
    built: dict[str, Any] | None = None,
) -> None:
    """Create an empty, loaded collection, in place of one that a failed attempt left."""
    if client.has_collection(name, **options):
        client.drop_collection(name, **options)
    parameters = client.prepare_index_params()
    kind, metric = index
    default = {"M": 16, "efConstruction": 64} if kind == "HNSW" else {}
    parameters.add_index(field_name=field, index_type=kind, metric_type=metric, params=built or default)
    client.create_collection(name, schema=schema, index_params=parameters, **options)


_ATTEMPTS: dict[str, Callable[[Any, str, dict[str, Any]], str]] = {
    "group_by": _group_by,
    "fp16 vectors": _vectors("FLOAT16_VECTOR", np.float16, 1.0, ("FLAT", "IP")),
    "int8 vectors": _vectors("INT8_VECTOR", np.int8, 100.0, ("HNSW", "IP")),
    "arrays of views (MAX_SIM)": _max_sim,
    "lexical search (BM25)": _bm25,
}
