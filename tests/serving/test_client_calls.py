"""Calls of clients: as much at a time as a server takes, and by the hooks of an ingest."""

import asyncio
import contextlib

import pytest
from serving_tools import ServedHere, fill, vectors

import mvindex
from mvindex import Document, ViewText
from mvindex.errors import DocumentError, Unsupported
from mvindex.ingest import Entry, IngestHooks
from mvindex.search.request import parse_request
from mvindex_connectors.remote import AsyncIndexClient
from mvindex_connectors.remote.requests import split_queries
from mvindex_connectors.remote.upload import CHUNK_BYTES, chunk_message, split_chunks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calls")
    fill(folder / "a.mvx")
    with mvindex.create(folder / "wide.mvx", dim=1024, shards=2) as index:
        index.add_views([Document(f"d{n}", "text") for n in range(8)], vectors(8, 1024))
    return folder


@pytest.fixture(scope="module")
def address(folder):
    """The address of a server of an index of 16 dimensions, a, and of two shards of one of 1,024, w0 and w1."""
    indexes = [("a", str(folder / "a.mvx"))]
    indexes += [(f"w{n}", str(folder / "wide.mvx" / f"shard-0000{n}-of-00002")) for n in range(2)]
    with contextlib.closing(ServedHere(indexes, is_read_only=False)) as servers:
        yield servers.addresses[0]


def test_view_texts_count_in_the_size_of_a_chunk():
    texts = tuple(ViewText("x" * 10_000, span=(0, 4)) for _ in range(30))
    entries = [Entry(f"line {n}", Document(f"d{n}", "text", view_texts=texts)) for n in range(60)]
    chunks = [chunk_message(0, chunk) for chunk in split_chunks(entries)]
    assert sum(len(chunk.documents) for chunk in chunks) == 60
    assert max(chunk.ByteSize() for chunk in chunks) <= CHUNK_BYTES


def test_a_large_batch_of_queries_is_searched_in_parts(folder, address):
    rows = vectors(4200, 1024, seed=7)
    asked = {"top_k": 3, "fields": ()}

    async def search():
        async with AsyncIndexClient(f"{address}/w0") as client:
            return await client.search(rows, **asked)

    with mvindex.open(f"{address}/w0") as one, mvindex.open([f"{address}/w0", f"{address}/w1"]) as shards:
        found, whole = one.search(rows, **asked), shards.search(rows, **asked)
    assert found == asyncio.run(search()) and len(found) == len(whole) == len(rows)
    with mvindex.open(folder / "wide.mvx") as index:
        assert whole == index.search(rows, **asked)


@pytest.mark.parametrize(("count", "length"), [(5000, 1), (100, 30_000), (3, 2_000_000)])
def test_queries_of_many_characters_are_sent_in_parts(count, length):
    texts = [f"{number} " + "x" * length for number in range(count)]
    [queries] = parse_request(texts, 10, None).queries
    parts = list(split_queries(queries))
    assert [text for part in parts for text in part.unencoded] == texts
    assert all(part.own_texts is None and len(part) <= 4096 for part in parts)
    assert all(len(part) == 1 or sum(map(len, part.unencoded)) <= 1 << 20 for part in parts)


def test_the_hooks_of_an_ingest_mean_what_they_mean_for_a_local_index(address):
    long, views = Document("long", "x" * 900), vectors(1)
    with mvindex.open(f"{address}/a") as client:
        with pytest.raises(DocumentError, match="'long': expected at most 800 characters, got 900"):
            client.add_views([long], views, hooks=IngestHooks(max_document_chars=800))
        with pytest.raises(Unsupported, match="note: expected an index in this process"):
            client.add_views([long], views, hooks=IngestHooks(note=lambda: {"kept": 1}))
        assert "long" not in client
        for _ in range(2):
            report = client.add_views([Document("marked", "text", "first")], views, hooks=IngestHooks(mark="once"))
            assert (report.added, report.replaced) == (1, 0)
            client.add_views([Document("marked", "text", "second")], views)
            assert client.get("marked").title == "second"


def test_the_administration_of_a_client_leaves_its_connection_open(address):
    with mvindex.open(f"{address}/a") as client:
        with client.admin as admin:
            assert admin is not None
        assert client.info().documents >= 50
