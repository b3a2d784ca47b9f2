"""A collection of others in Milvus, opened as it is: distinct documents, scored from the stored vectors."""

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, StoreError, Unsupported
from mvindex.testing import brute_force, unit
from mvindex_connectors.adopted import adopt_milvus
from mvindex_connectors.milvus.address import parse_address
from mvindex_connectors.milvus.connection import Connection

COUNT, DIM, DOCUMENTS = 400, 16, 60
RNG = np.random.default_rng(3)
VECTORS = unit(RNG.standard_normal((COUNT, DIM)))
NUMBERS = [int(n % 5 if n % 3 == 0 else RNG.integers(0, DOCUMENTS)) for n in range(COUNT)]
QUERIES = RNG.standard_normal((3, DIM)).astype(np.float32)
FIELDS = {"vector_field": "emb", "id_field": "owner"}


@pytest.fixture(
    params=[
        pytest.param("lite", marks=pytest.mark.needs("milvus-lite")),
        pytest.param("server", marks=pytest.mark.needs("milvus-server")),
    ]
)
def place(request, tmp_path):
    """The address of no collection yet, in Lite and on a real server."""
    if request.param == "lite":
        return f"milvus-lite:{tmp_path / 'old.db'}?collection=old"
    return request.getfixturevalue("address")


def fill(place, metric="COSINE", *, names=True):
    """Make a collection as others do, by pymilvus alone; returns the views of each document."""
    from pymilvus import DataType, MilvusClient

    connection = Connection(parse_address(place))
    try:
        client, name = connection._client, connection.address.collection
        schema = MilvusClient.create_schema(auto_id=False)
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("emb", DataType.FLOAT_VECTOR, dim=DIM)
        kind, length = (DataType.VARCHAR, {"max_length": 64}) if names else (DataType.INT64, {})
        schema.add_field("owner", kind, **length)
        schema.add_field("body", DataType.VARCHAR, max_length=200)
        index = client.prepare_index_params()
        index.add_index("emb", index_type="FLAT", metric_type=metric)
        client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")
        owners = [f"d'{number}" if names else number for number in NUMBERS]
        columns = zip(VECTORS.tolist(), owners, strict=True)
        client.insert(
            name,
            [{"key": key, "emb": row, "owner": own, "body": f"text {own}"} for key, (row, own) in enumerate(columns)],
        )
        client.flush(name)
    finally:
        connection.close()
    return {str(owner): VECTORS[[one == owner for one in owners]] for owner in dict.fromkeys(owners)}


@pytest.mark.parametrize("scoring", [{}, {"scoring": "drpq", "temperature": 0.3}], ids=["max", "drpq"])
def test_documents_are_distinct_and_scored_from_the_stored_vectors(place, scoring):
    views = fill(place, "IP")
    with adopt_milvus(place, **FIELDS, text_field="body") as index:
        for query in QUERIES:
            for top_k in (5, 100):
                result = index.search(query, top_k, **scoring)
                truth = {
                    name: (score, slot) for name, score, slot in brute_force(views, query, 100, dtype="fp32", **scoring)
                }
                assert len({hit.id for hit in result.hits}) == len(result.hits) == min(top_k, len(views))
                found = [(hit.id, np.float32(hit.score), hit.slot, hit.text) for hit in result.hits]
                assert found == [(hit.id, *truth[hit.id], f"text {hit.id}") for hit in result.hits]
                assert [hit.score for hit in result.hits] == sorted((hit.score for hit in result.hits), reverse=True)
                assert not result.exact and result.short_by == 0
                every = index.search(query, top_k, exact=True, **scoring)
                assert every.exact and [(hit.id, np.float32(hit.score), hit.slot) for hit in every.hits] == [
                    (name, *truth[name]) for name in list(truth)[:top_k]
                ]
                if not scoring or top_k == 100:
                    assert [hit.id for hit in result.hits] == list(truth)[:top_k]
        assert [hit.citation.text for hit in index.search(QUERIES[0], 2, text="which text")][0].startswith("text d'")


ROWS = [
    # Of "oil" the third row is the best for OPEC, and the first by its key for nothing.
    ("oil", "Preface. Nothing was known then.", [1.0, 0.0, 0.0]),
    ("plague", "The plague reached Crimea.", [0.1, 0.7, 0.0]),
    ("oil", "OPEC met in Vienna. It raised the price in 1973.", [0.0, 1.0, 0.0]),
    ("oil", "", [0.0, 0.0, 1.0]),
    ("oil", "Preface. Nothing was known then.", [0.6, 0.0, 0.0]),
]


@pytest.mark.needs("milvus-lite")
@pytest.mark.parametrize("scoring", [{}, {"scoring": "drpq", "temperature": 0.3}], ids=["max", "drpq"])
def test_a_hit_has_the_text_of_the_row_that_scored_best(tmp_path, scoring):
    from pymilvus import MilvusClient

    client = MilvusClient(str(tmp_path / "old.db"))
    client.create_collection("old", dimension=3, metric_type="IP")
    client.insert(
        "old", [{"id": n, "doc": doc, "body": body, "vector": row} for n, (doc, body, row) in enumerate(ROWS)]
    )
    client.close()
    fields = {"vector_field": "vector", "id_field": "doc", "text_field": "body"}
    with adopt_milvus(f"milvus-lite:{tmp_path}/old.db?collection=old", **fields) as index:
        hit = index.search(np.array([0.0, 1.0, 0.0]), 1, text="when did OPEC raise the price?", **scoring).hits[0]
        assert (hit.id, hit.slot, hit.text) == ("oil", 1, ROWS[2][1])
        assert hit.citation.text == hit.snippet == "It raised the price in 1973."
        assert hit.text[slice(*hit.span)] == hit.text
        empty = index.search(np.array([0.0, 0.0, 1.0]), 1, text="when?", **scoring).hits[0]
        assert (empty.id, empty.slot, empty.text, empty.span, empty.citation) == ("oil", 2, "", None, None)
        no_text = index.search(np.array([0.0, 1.0, 0.0]), 1, fields=["title"], **scoring).hits[0]
        assert (no_text.id, no_text.slot, no_text.text, no_text.snippet) == ("oil", 1, "", None)
        # The document has each distinct text once, and every view stands for the text of its row.
        assert index.get("oil").text == f"{ROWS[0][1]}\n\n{ROWS[2][1]}"
        assert index.views("oil").snippets == (ROWS[0][1], ROWS[2][1], None, ROWS[0][1])
        assert index.explain(np.array([0.0, 1.0, 0.0]), "oil")[0].snippet == ROWS[2][1]


def test_a_collection_of_others_names_the_command_that_adopts_it(place, tmp_path):
    fill(place)
    with pytest.raises(StoreError, match=r"expected a collection that mvindex made") as failure:
        mvindex.open(place)
    command = str(failure.value).split("`")[3].split()
    flags = dict(zip(command[4::2], command[5::2], strict=True))
    assert command[:4] == ["mvindex", "adopt", "NEW.side", repr(parse_address(place).text)]
    assert flags == {"--vector-field": "emb", "--id-field": "...", "--text-field": "body"}
    with pytest.raises(ConfigError, match="expected --id-field, one of the fields key, emb, owner, body"):
        adopt_milvus(place)
    with adopt_milvus(place, id_field="owner") as index:
        assert len(index) == len(set(NUMBERS)) and index.search(VECTORS[0], 1)[0].text.startswith("text ")


@pytest.mark.needs("milvus-lite")
def test_a_missing_collection_names_those_that_exist(tmp_path):
    fill(f"milvus-lite:{tmp_path}/old.db?collection=old")
    with pytest.raises(StoreError, match=r"got old\. Name one: \?collection=NAME"):
        mvindex.open(f"milvus-lite:{tmp_path}/old.db")


@pytest.mark.parametrize(("metric", "names"), [("COSINE", True), ("L2", False)])
def test_other_metrics_and_numbers_as_ids(place, metric, names):
    views = fill(place, metric, names=names)
    with adopt_milvus(place, **FIELDS) as index:
        query = QUERIES[0]
        wide = {name: rows.astype(np.float64) for name, rows in views.items()}
        if metric == "L2":
            scores = {name: -np.square(rows - query).sum(axis=1).min() for name, rows in wide.items()}
        else:
            lengths = {
                name: np.linalg.norm(rows, axis=1) * np.linalg.norm(query.astype(np.float64))
                for name, rows in wide.items()
            }
            scores = {name: (rows @ query / lengths[name]).max() for name, rows in wide.items()}
        hits = index.search(query, 10).hits
        assert [hit.id for hit in hits] == sorted(scores, key=scores.get, reverse=True)[:10]
        np.testing.assert_allclose([hit.score for hit in hits], [scores[hit.id] for hit in hits], rtol=1e-6)
        assert len(index) == len(views) and {document.id for document in index} == set(views)
        assert index.get([hits[0].id, "none"])[0].id == hits[0].id


def test_it_is_read_only_and_fields_are_checked(place):
    fill(place)
    for wrong in (
        {"vector_field": "none", "id_field": "owner"},
        {"vector_field": "owner", "id_field": "owner"},
        {"vector_field": "emb", "id_field": "emb"},
        {**FIELDS, "text_field": "none"},
    ):
        with pytest.raises(ConfigError, match="expected"):
            adopt_milvus(place, **wrong)
    with adopt_milvus(place, **FIELDS) as index:
        for refused in (
            lambda: index.add_views([mvindex.Document("new", "text")], VECTORS[:1]),
            lambda: index.delete(ids="d'1"),
            lambda: index.search(QUERIES[0], mode="lexical", text="text"),
            lambda: index.search(QUERIES[0], filter={"n": 1}),
        ):
            with pytest.raises(Unsupported):
                refused()
        assert index.info().views == COUNT


@pytest.mark.needs("milvus-lite")
def test_ids_and_texts_may_be_in_dynamic_fields(tmp_path):
    from pymilvus import MilvusClient

    rows = [
        {"id": n, "owner": f"d{n // 2}", "body": f"text {n // 2}", "vector": VECTORS[n].tolist()} for n in range(20)
    ]
    for name, changed in (("good", {}), ("bad", {"owner": 7})):
        client = MilvusClient(str(tmp_path / f"{name}.db"))
        client.create_collection("old", dimension=DIM, metric_type="IP")
        client.insert("old", [*rows[:-1], rows[-1] | changed])
        client.close()
    where = f"milvus-lite:{tmp_path}/{{}}.db?collection=old"
    fields = {"vector_field": "vector", "id_field": "owner", "text_field": "body"}
    with adopt_milvus(where.format("good"), **fields) as index:
        hits = index.search(VECTORS[7], 20).hits
        assert hits[0].id == "d3" and hits[0].text == "text 3" and len(hits) == len(index) == 10
    with adopt_milvus(where.format("bad"), **fields) as index, pytest.raises(StoreError, match="a text in every row"):
        index.search(VECTORS[7], 20)


@pytest.mark.needs("milvus-lite")
def test_rows_that_others_add_are_found_and_counted(tmp_path):
    views = fill(f"milvus-lite:{tmp_path}/old.db?collection=old", "IP")
    with adopt_milvus(f"milvus-lite:{tmp_path}/old.db?collection=old", **FIELDS) as index:
        client = index._store._source._collection._connection._client
        client.delete("old", filter="key > 1")
        assert (len(index.search(QUERIES[0], 5).hits), len(index)) == (2, 2)
        added = [
            {"key": key, "emb": VECTORS[key].tolist(), "owner": f"d'{NUMBERS[key]}", "body": ""}
            for key in range(2, COUNT)
        ]
        client.insert("old", added)
        truth = [name for name, _, _ in brute_force(views, QUERIES[0], 100, dtype="fp32")]
        for top_k in (5, 100):
            result = index.search(QUERIES[0], top_k)
            assert ([hit.id for hit in result.hits], result.short_by) == (truth[:top_k], 0)
        assert (len(index), index.info().views) == (len(views), COUNT)
