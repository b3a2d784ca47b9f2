"""What a client sends: as much at a time as a server takes, and by the hooks of an ingest."""

import contextlib

import pytest
from serving_tools import ServedHere, fill

from mvindex import Document, ViewText
from mvindex.ingest import Entry
from mvindex_connectors.remote.upload import CHUNK_BYTES, chunk_message, split_chunks


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of a server of an index of 16 dimensions, a, and of one of 1,024, wide."""
    folder = tmp_path_factory.mktemp("calls")
    fill(folder / "a.mvx")
    fill(folder / "wide.mvx", count=2, dim=1024)
    indexes = [(name, str(folder / f"{name}.mvx")) for name in ("a", "wide")]
    with contextlib.closing(ServedHere(indexes, is_read_only=False)) as servers:
        yield servers.addresses[0]


def test_view_texts_count_in_the_size_of_a_chunk():
    texts = tuple(ViewText("x" * 10_000, span=(0, 4)) for _ in range(30))
    entries = [Entry(f"line {n}", Document(f"d{n}", "text", view_texts=texts)) for n in range(60)]
    chunks = [chunk_message(0, chunk) for chunk in split_chunks(entries)]
    assert sum(len(chunk.documents) for chunk in chunks) == 60
    assert max(chunk.ByteSize() for chunk in chunks) <= CHUNK_BYTES
