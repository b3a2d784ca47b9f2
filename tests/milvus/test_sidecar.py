"""A collection of others with a sidecar is searched in place: terms, filters and hybrid search, as in a copy."""

import contextlib
import random
import signal
import subprocess
import sys
from itertools import count

import numpy as np
import pytest
from milvus_rows import DIM, create, documents, insert

import mvindex
from mvindex.errors import ConfigError, StoreError, Unsupported
from mvindex.io import Target
from mvindex_connectors.adopted import sync_milvus
from mvindex_connectors.adopted.milvus_import import import_milvus
from mvindex_connectors.milvus.address import parse_address
from mvindex_connectors.milvus.connection import Connection
from tests.helpers.cli import lines, ok
from tests.helpers.cli import mvindex as command
from tests.serving.serving_tools import served

WORDS = "oil embargo price shock plague harbour trade winter bread coal steam wool".split()
FILTERS = [None, {"lang": "en"}, {"tags": {"contains": "t1"}}, {"note.of": {"gt": 60}}, {"id": {"in": ["doc 3"]}}]
KEYS = count(90_000)
TEXTS = ["oil price", "the plague of winter", "steam +coal", "trade -wool", "nothing", "chunk 7"]


def worded(size=120):
    """Return documents whose chunks say different things."""
    made, choose = documents(size), random.Random(5)
    for own in made.values():
        for row in own:
            row["text"] = f"{row['text']} {' '.join(choose.choices(WORDS, k=6))}."
    return made


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("lite", marks=pytest.mark.needs("milvus-lite")),
        pytest.param("server", marks=pytest.mark.needs("milvus-server")),
    ],
)
def both(request, tmp_path_factory):
    """A collection by inner products, its sidecar, and a copy of it in a directory."""
    folder, made = tmp_path_factory.mktemp("both"), worded()
    if request.param == "lite":
        place = create(folder / "old.db", made, "IP")
    else:
        place = request.getfixturevalue("server").url(f"adopted{random.randrange(1 << 32)}")
        insert(parse_address(place).uri, parse_address(place).collection, made, "IP")
    report = sync_milvus(folder / "old.side", place, lexical="english")
    assert (report.rows, report.documents, report.added) == (sum(map(len, made.values())), 120, 120)
    import_milvus(place, Target(path=str(folder / "copy.mvx"), lexical="english"))
    return place, folder


def same(found, expected, copy, *, exact=True):
    """Compare hits and what is said of them; the text of an adopted one is that of its row."""
    assert [hit.text for hit in found.hits] == [copy.views(hit.id).snippets[hit.slot] for hit in expected.hits]
    rows, others = (
        [(hit.id, hit.score, hit.slot, hit.metadata, hit.components) for hit in result.hits]
        for result in (found, expected)
    )
    assert rows == others
    assert (found.mode, found.short_by) == (expected.mode, 0) and (found.exact or not exact)


def test_searches_are_those_of_a_copy(both):
    _, folder = both
    queries = np.random.default_rng(8).standard_normal((len(TEXTS), DIM)).astype(np.float32)
    with mvindex.open(f"adopted:{folder}/old.side") as index, mvindex.open(folder / "copy.mvx") as copy:
        assert (len(index), index.info().lexical, index.info().views) == (120, "english", copy.info().views)
        for condition in FILTERS:
            for text, query in zip(TEXTS, queries, strict=True):
                for options in (
                    {},
                    {"mode": "dense"},
                    {"mode": "lexical"},
                    {"exact": True},
                    {"scoring": "drpq", "temperature": 0.4, "exact": True},
                    {"fusion": "rrf", "exact": True, "offset": 2},
                ):
                    call = {"text": text, "filter": condition, **options}
                    same(
                        index.search(query, 7, **call), copy.search(query, 7, **call), copy, exact=options.get("exact")
                    )
            call = {"text": "steam +coal -wool", "filter": condition, "operators": True}
            same(index.search(queries[0], 7, **call), copy.search(queries[0], 7, **call), copy, exact=False)
            ids = [document.id for document in copy.scan(condition)]
            assert [document.id for document in index.scan(condition)] == ids
        assert index.search(queries, 5, exact=True) and index.get("doc 3") == copy.get("doc 3")


def test_a_hit_shows_the_neighbors_of_its_row_on_request(both):
    _, folder = both
    made, query = worded(), np.ones(DIM, dtype=np.float32)
    with mvindex.open(f"adopted:{folder}/old.side?neighbors=1") as index:
        for hit in index.search(query, 20, text="oil price").hits:
            rows = [row["text"] for row in made[hit.id]]
            assert hit.text == "\n\n".join(rows[max(hit.slot - 1, 0) : hit.slot + 2])
            assert hit.text[slice(*hit.span)] == rows[hit.slot] and hit.citation.text in hit.text
    for wrong in ("?neighbors=-1", "?neighbors=x", "?others=1"):
        with pytest.raises(ConfigError, match="neighbors"):
            mvindex.open(f"adopted:{folder}/old.side{wrong}")


def test_writes_are_refused_and_the_collection_stays(both):
    _, folder = both
    with mvindex.open(f"adopted:{folder}/old.side") as index:
        for refused in (
            lambda: index.delete(ids="doc 1"),
            lambda: index.update("doc 1", metadata={}),
            lambda: index.add_views([mvindex.Document("new", "text")], np.ones((1, DIM))),
            lambda: index.admin.build("flat"),
            lambda: index.admin.set_hybrid_weights("rrf"),
            lambda: index.admin.tune_fusion(["oil"] * 20, [{"doc 1": 1.0}] * 20, vectors=np.ones((20, DIM))),
            lambda: index.admin.enable_lexical("english"),
            lambda: index.admin.disable_lexical(),
        ):
            with pytest.raises(Unsupported, match="read as others made it"):
                refused()
        assert not index.admin.rebuild_lexical_if_damaged()


@pytest.mark.full
def test_a_server_of_it_gives_what_it_gives_here(both):
    _, folder = both
    place, calls = f"adopted:{folder}/old.side", [{}, {"filter": {"lang": "en"}}, {"mode": "lexical"}, {"exact": True}]
    queries = np.random.default_rng(9).standard_normal((4, DIM)).astype(np.float32)
    with mvindex.open(place) as index:
        expected = [index.search(query, 7, text="oil", **call) for query in queries for call in calls]
        document = index.get("doc 3")
    with served(f"--index=theirs={place}") as serving, mvindex.open(serving.url("theirs")) as index:
        found = [index.search(query, 7, text="oil", **call) for query in queries for call in calls]
        assert [(each.hits, each.exact, each.mode) for each in found] == [
            (each.hits, each.exact, each.mode) for each in expected
        ]
        assert index.get("doc 3") == document and len(list(index)) == 120
        with pytest.raises(Unsupported, match="takes no writes"):
            index.delete(ids="doc 1")


def test_a_store_of_langchain_searches_it(both):
    pytest.importorskip("langchain_core", reason="NOT RUN: needs langchain-core")
    from langchain_core.embeddings import Embeddings

    from mvindex_connectors.frameworks.langchain import MVIndexVectorStore

    class Given(Embeddings):
        def embed_documents(self, texts):
            raise AssertionError("no text is encoded")

        def embed_query(self, text):
            return np.random.default_rng(len(text)).standard_normal(DIM).tolist()

    _, folder = both
    place, text = f"adopted:{folder}/old.side", "oil embargo"
    with mvindex.open(place) as index:
        expected = index.search(Given().embed_query(text), 5, text=text, filter={"lang": "en"})
    store = MVIndexVectorStore(place, Given())
    with contextlib.closing(store):
        found = store.similarity_search(text, 5, filter={"lang": "en"})
        assert [(each.id, each.page_content) for each in found] == [(hit.id, hit.text) for hit in expected.hits]
        with pytest.raises(Unsupported, match="takes no writes"):
            store.delete(["doc 1"])


def changed(place, made, add=(), delete=()):
    """Change rows of a collection as others do."""
    connection = Connection(parse_address(place))
    try:
        client, name = connection._client, connection.address.collection
        connection.load(name)
        if delete:
            client.delete(name, filter=f"doc_id in {list(delete)}".replace("'", '"'))
        for doc_id in add:
            rows = [{"pk": next(KEYS), **row} for slot, row in enumerate(made[doc_id])]
            client.upsert(name, rows)
    finally:
        connection.close()


@pytest.mark.needs("milvus-lite")
def test_a_sidecar_that_is_behind_says_so_and_is_brought_up_to_date(tmp_path):
    made = worded(40)
    place = create(tmp_path / "old.db", made, "COSINE")
    side, query = tmp_path / "old.side", np.ones(DIM, dtype=np.float32)
    sync_milvus(side, place)
    with mvindex.open(f"adopted:{side}") as index:
        before = index.search(query, 10, text="oil price")
        assert before.mode == "hybrid" and before.hits
        more = {"doc new": worded(60)["doc 55"]}
        for row in more["doc new"]:
            row["doc_id"] = "doc new"
        changed(place, more, add=["doc new"])
        for call in ({"text": "oil price"}, {"filter": {"lang": "de"}}, {"text": "oil", "mode": "lexical"}):
            with pytest.raises(StoreError, match=r"its sidecar is behind: .*`mvindex adopt .*old\.side` updates it"):
                index.search(query, 10, **call)
        assert len(index) == 41 and len(index.search(query, 50).hits) == 41
        report = sync_milvus(side)
        assert (report.added, report.unchanged, report.deleted, report.documents) == (1, 40, 0, 41)
        # An open index follows the sync.
        assert len(index.search(query, 60, text="oil price").hits) == 41
        # As many rows as before, but others: what a result shows is compared.
        made["doc 3"][0]["text"] = "Quite another text about zebras."
        changed(place, made, add=["doc 3"], delete=["doc 3"])
        with pytest.raises(StoreError, match=r"is behind: document 'doc 3' has changed"):
            index.search(query, 5, filter={"id": "doc 3"})
        report = sync_milvus(side)
        assert (report.added, report.replaced, report.unchanged) == (0, 1, 40)
        assert [hit.id for hit in index.search(query, 5, text="zebras", mode="lexical").hits] == ["doc 3"]
        changed(place, made, delete=["doc 3", "doc 9"])
        assert sync_milvus(side).deleted == 2
        assert {hit.id for hit in index.search(query, 60, text="zebras oil").hits} == {*made, "doc new"} - {
            "doc 3",
            "doc 9",
        }


@pytest.mark.needs("milvus-lite")
def test_a_sync_that_was_killed_is_behind_until_the_same_command_has_ended(tmp_path):
    place = create(tmp_path / "old.db", worded(1500), "IP")
    script = f"""
import os, signal
from mvindex_connectors.adopted import sync_milvus
def on_progress(step, done, total):
    if step == "storing documents" and done > 1200:
        os.kill(os.getpid(), signal.SIGKILL)
sync_milvus("old.side", {place!r}, on_progress=on_progress)
"""
    killed = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL
    query = np.ones(DIM, dtype=np.float32)
    with mvindex.open(f"adopted:{tmp_path}/old.side") as index:
        with pytest.raises(StoreError, match="the last sync did not come to its end"):
            index.search(query, 5, text="oil price")
        assert len(index.search(query, 5).hits) == 5
    [report] = lines(ok(command("adopt", "old.side", "--json", cwd=tmp_path)))
    assert (report["documents"], report["added"] + report["unchanged"]) == (1500, 1500) and report["unchanged"] >= 1024
    assert report["fields"]["order"] == "chunk_index"
    with mvindex.open(f"adopted:{tmp_path}/old.side") as index:
        assert len(index.search(query, 5, text="oil price").hits) == 5


@pytest.mark.needs("milvus-lite")
def test_the_command_makes_a_sidecar_that_commands_search(tmp_path):
    place = create(tmp_path / "old.db", worded(20), "IP")
    ok(command("adopt", "old.side", place, "--json", cwd=tmp_path))
    found = ok(
        command("query", "oil price", "--mode", "lexical", "--index", "adopted:old.side", "--json", cwd=tmp_path)
    )
    assert lines(found)
    for wrong, message in (
        (("adopt", "old.side", "--id-field", "lang"), "id_field: expected 'doc_id'"),
        (("adopt", "old.side", "milvus-lite:other.db?collection=chunks"), "expected the collection"),
        (("adopt", "none.side"), "expected the address of a collection"),
        (("query", "oil", "--index", "adopted:none.side"), "none.side"),
    ):
        done = command(*wrong, cwd=tmp_path)
        assert done.returncode == 1 and message in done.stderr
    mvindex.create(tmp_path / "own.mvx", dim=2).close()
    with pytest.raises(StoreError, match="expected a folder that `mvindex adopt` made"):
        mvindex.open(f"adopted:{tmp_path}/own.mvx")
    with pytest.raises(ConfigError, match="expected a token from the environment"):
        sync_milvus(tmp_path / "new.side", "milvus://me:secret@localhost/chunks")
