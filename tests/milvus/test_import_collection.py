"""`mvindex import milvus`: collections that others made, by pymilvus alone, become indexes with nothing encoded."""

import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from milvus_rows import DIM, DOCUMENTS, create, documents, insert

import mvindex
from mvindex.encoder.registry import as_encoder
from mvindex.errors import ConfigError, CorpusError, EngineUnavailable, StoreError, Unsupported
from mvindex.io import Target
from mvindex.testing import brute_force, unit
from mvindex_connectors.adopted.milvus_import import import_milvus
from mvindex_connectors.milvus import connection
from mvindex_connectors.milvus.address import parse_address
from tests.helpers.cli import lines, ok
from tests.helpers.cli import mvindex as command

pytestmark = pytest.mark.needs("milvus-lite")


def views_of(made, metric="COSINE"):
    rows = {doc_id: np.array([row["vector"] for row in own], dtype=np.float32) for doc_id, own in made.items()}
    return {doc_id: unit(own) if metric == "COSINE" else own for doc_id, own in rows.items()}


def check(index, made, metric="COSINE"):
    """Compare documents, spans and searches with what was inserted, and with brute force over its vectors."""
    assert len(index) == len(made)
    for document in index:
        own = made[document.id]
        assert document.text == "\n\n".join(row["text"] for row in own)
        expected = {name: own[0][name] for name in ("lang", "tags", "year", "note") if name in own[0]}
        if len(own) == 1:
            expected["page"] = own[0]["page"]
        assert document.metadata == expected
        assert index.views(document.id).snippets == tuple(row["text"] for row in own)
    views, order = views_of(made, metric), [document.id for document in index]
    views = {doc_id: views[doc_id] for doc_id in order}
    for query in unit(np.random.default_rng(5).standard_normal((25, DIM))):
        result = index.search(query, 10)
        assert result.exact
        found = [(hit.id, np.float32(hit.score), hit.slot) for hit in result.hits]
        assert found == brute_force(views, query, 10, dtype="fp32")
        assert all(hit.snippet == made[hit.id][hit.slot]["text"] for hit in result.hits)


@pytest.fixture(scope="module")
def made():
    return documents()


@pytest.fixture(scope="module")
def collection(made, tmp_path_factory):
    return create(tmp_path_factory.mktemp("old") / "old.db", made)


def test_the_command_imports_all_rows_and_searches_equal_brute_force(collection, made, tmp_path):
    [report] = lines(ok(command("import", "milvus", collection, "--index", "new.mvx", "--json", cwd=tmp_path)))
    rows = sum(map(len, made.values()))
    assert (report["documents"], report["imported"], report["views"], report["rows"]) == (320, 320, rows, rows)
    assert (report["id_field"], report["text_field"], report["order_field"]) == ("doc_id", "text", "chunk_index")
    assert (report["vector_field"], report["metric"], report["left_out"]) == ("vector", "COSINE", ["page"])
    with mvindex.open(tmp_path / "new.mvx") as index:
        check(index, made)
        stored = [index.views(document.id) for document in index]
        vectors, spans = [one.vectors for one in stored], [one.spans for one in stored]
        assert index.add_views(list(index), vectors, spans=spans).unchanged == len(made)
        hits = index.search(np.ones(DIM), 400, filter={"lang": "en", "tags": {"contains": "t1"}}).hits
        expected = [doc_id for doc_id, own in made.items() if own[0]["lang"] == "en" and "t1" in own[0]["tags"]]
        assert sorted(hit.id for hit in hits) == sorted(expected)


@pytest.mark.needs("milvus-server")
@pytest.mark.parametrize("key_order", [False, True], ids=["by order", "by key"])
def test_a_server_gives_the_same_rows(address, made, tmp_path, key_order):
    place = parse_address(address)
    insert(place.uri, place.collection, made, "IP")
    options = {"order_field": "pk"} if key_order else {}
    report = import_milvus(address, Target(path=str(tmp_path / "new.mvx")), **options)
    assert (report.documents, report.notes["rows"]) == (DOCUMENTS, sum(map(len, made.values())))
    with mvindex.open(tmp_path / "new.mvx") as index:
        if not key_order:
            check(index, made, "IP")
        shown = {one.id: sorted(one.text.split("\n\n")) for one in index}
    assert shown == {doc_id: sorted(row["text"] for row in own) for doc_id, own in made.items()}


@pytest.mark.parametrize("metric", ["IP", "L2"])
def test_vectors_stay_bit_for_bit_by_inner_product_and_by_l2_where_their_lengths_are_1(tmp_path, metric):
    made = documents(40)
    for own in made.values():
        for row in own:
            row["vector"] = (np.array(row["vector"]) if metric == "IP" else unit(row["vector"])).tolist()
    address = create(tmp_path / "old.db", made, metric)
    import_milvus(address, Target(path=str(tmp_path / "new.mvx")))
    with mvindex.open(tmp_path / "new.mvx") as index:
        check(index, made, "IP")


def test_the_target_may_be_milvus_too(tmp_path):
    made = documents(30)
    address = create(tmp_path / "old.db", made)
    target = f"milvus-lite:{tmp_path}/old.db?collection=new"
    assert import_milvus(address, Target(path=target)).documents == 30
    with mvindex.open(target) as index:
        check(index, made)


def test_a_kill_in_the_middle_loses_nothing_and_the_command_continues(tmp_path):
    made = documents(2500)
    address = create(tmp_path / "old.db", made)
    script = f"""
import os, signal
from mvindex.io import Target
from mvindex_connectors.adopted.milvus_import import import_milvus
def on_progress(step, done, total):
    if step == "importing" and done > 1000:
        os.kill(os.getpid(), signal.SIGKILL)
import_milvus({address!r}, Target(path="new.mvx"), on_progress=on_progress)
"""
    killed = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL and not (tmp_path / "new.mvx").exists()
    [report] = lines(ok(command("import", "milvus", address, "--index", "new.mvx", "--json", cwd=tmp_path)))
    assert (report["documents"], report["imported"]) == (2500, 2500 - 1024)
    with mvindex.open(tmp_path / "new.mvx") as index:
        check(index, made)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.mvx", "old.db"]


def test_a_released_collection_is_loaded(tmp_path):
    from pymilvus import MilvusClient

    made = documents(5)
    address = create(tmp_path / "old.db", made)
    client = MilvusClient(str(tmp_path / "old.db"))
    client.release_collection("chunks")
    client.close()
    assert import_milvus(address, Target(path=str(tmp_path / "new.mvx"))).documents == 5


def test_rows_without_an_order_come_by_their_keys_and_empty_texts_have_no_span(tmp_path):
    from pymilvus import MilvusClient

    rows = [("b", "Two.", [0, 1]), ("a", "One.", [1, 0]), ("b", "", [1, 1]), ("b", "Two.", [0, 2])]
    client = MilvusClient(str(tmp_path / "old.db"))
    client.create_collection("old", dimension=2, metric_type="IP")
    client.insert(
        "old", [{"id": 9 - n, "owner": doc, "content": text, "vector": row} for n, (doc, text, row) in enumerate(rows)]
    )
    client.close()
    place = f"milvus-lite:{tmp_path}/old.db?collection=old"
    with pytest.raises(ConfigError, match="expected --id-field, one of the fields id, vector, .*owner"):
        import_milvus(place, Target(path=str(tmp_path / "new.mvx")))
    report = import_milvus(place, Target(path=str(tmp_path / "new.mvx")), id_field="owner")
    assert report.notes["text_field"] == "content"
    # A text of several rows is in the document once.
    with mvindex.open(tmp_path / "new.mvx") as index:
        assert [(one.id, one.text) for one in index] == [("b", "Two."), ("a", "One.")]
        assert index.views("b").snippets == ("Two.", None, "Two.")
        assert index.views("b").vectors.tolist() == [[0, 2], [1, 1], [0, 1]]


def refused(kind, message, tmp_path, address, **options):
    """Check that an import is refused by this error, and leaves nothing behind."""
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(kind, match=message):
        import_milvus(address, Target(path=str(tmp_path / "new.mvx"), encoder=options.pop("encoder", None)), **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_wrong_collections_and_fields_are_refused(collection, tmp_path):
    place = collection.partition("?")[0]
    refused(StoreError, r"expected a collection 'none', got chunks", tmp_path, f"{place}?collection=none")
    refused(StoreError, "no such database", tmp_path, f"milvus-lite:{tmp_path}/none.db?collection=chunks")
    refused(ConfigError, "vector_field|expected FLOAT_VECTOR, got VARCHAR", tmp_path, collection, vector_field="text")
    refused(ConfigError, "expected one of the fields .* got 'none'", tmp_path, collection, vector_field="none")
    refused(ConfigError, "doc_id|expected VARCHAR or INT64, got ARRAY", tmp_path, collection, id_field="tags")
    refused(StoreError, "none: expected a text in every row, got None", tmp_path, collection, id_field="none")
    refused(CorpusError, "none: expected a number or a text, got None", tmp_path, collection, order_field="none")
    refused(CorpusError, r"row 0: page: expected a text, got 1\d", tmp_path, collection, text_field="page")


def test_an_encoder_of_other_dims_is_refused(collection, tmp_path):
    encoder = as_encoder(lambda texts: np.ones((len(texts), 8), dtype=np.float32))
    refused(ConfigError, "makes vectors of 8 dims; expected 24", tmp_path, collection, encoder=encoder)


def test_null_vectors_are_refused(tmp_path):
    made = documents(3)
    made["doc 1"][0]["vector"] = None
    address = create(tmp_path / "old.db", made, "IP", nullable=True)
    refused(CorpusError, r"row \d+: vector: expected a vector, got NULL or zeros", tmp_path, address)


def test_an_empty_collection_is_refused(tmp_path):
    refused(CorpusError, "expected rows, got an empty collection", tmp_path, create(tmp_path / "old.db", {}))


def test_l2_of_other_lengths_is_refused_or_taken_as_inner_products(tmp_path):
    made = documents(3)
    address = create(tmp_path / "old.db", made, "L2")
    refused(
        Unsupported, r"row 0: the metric is L2, and the vector has length .*--accept-inner-product", tmp_path, address
    )
    report = import_milvus(address, Target(path=str(tmp_path / "new.mvx")), accept_inner_product=True)
    assert report.documents == 3


def test_an_index_of_mvindex_is_for_migrate(tmp_path):
    place = f"milvus-lite:{tmp_path}/own.db"
    mvindex.create(place, dim=2).close()
    refused(Unsupported, "mvindex migrate", tmp_path, place, vector_field="vec", id_field="id")


@pytest.mark.parametrize("answers", [False, True], ids=["refused", "silent"])
def test_an_unreachable_server_is_given_less_than_5_seconds_and_named(tmp_path, monkeypatch, answers):
    connect, given_s = connection._connected, []

    def connecting(address, seconds):
        given_s.append(seconds)
        return connect(address, seconds)

    monkeypatch.setattr(connection, "_connected", connecting)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        if not answers:
            listening.close()
        refused(
            EngineUnavailable, f"127.0.0.1:{port}/chunks: connecting", tmp_path, f"milvus://127.0.0.1:{port}/chunks"
        )
    assert given_s
    assert max(given_s) < 5


def test_info_prints_the_guess_and_the_two_ways(collection, made, tmp_path):
    done = command("info", "--index", collection, cwd=tmp_path)
    assert done.returncode == 1
    [line] = done.stderr.strip().splitlines()
    copying, adopting = line.split("`")[1::2]
    run = copying.replace("NEW.mvx", "guessed.mvx").replace("'", "").split()
    assert run[:3] == ["mvindex", "import", "milvus"] and run[-2:] == ["--order-field", "chunk_index"]
    [report] = lines(ok(command(*run[1:], "--json", cwd=tmp_path)))
    assert report["documents"] == len(made)
    run = adopting.replace("'", "").split()
    assert run[:3] == ["mvindex", "adopt", "NEW.side"] and run[-2:] == ["--order-field", "chunk_index"]
    [report] = lines(ok(command(*run[1:], "--json", cwd=tmp_path)))
    assert report["documents"] == len(made)
