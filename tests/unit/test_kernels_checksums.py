"""The compiled xxh3-64 against the library's, and the views that it finds damaged."""

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mvindex
from mvindex.errors import DamagedIndex
from mvindex.search import rescore
from mvindex.testing import unit

pytest.importorskip("numba", reason="NOT RUN: needs numba (the extra native)")

from mvindex.kernels.checksums import SHORT_BYTES, xxh3_64  # noqa: E402 - needs numba
from mvindex.kernels.compiled import compiled  # noqa: E402 - needs numba


@compiled
def digests_of(address, sizes, digests):
    for row in range(len(sizes)):
        digests[row] = xxh3_64(address, sizes[row])


def compiled_digests(data, sizes):
    """What the compiled function makes of the first so many bytes, for each of the sizes."""
    digests = np.zeros(len(sizes), dtype=np.uint64)
    digests_of(np.frombuffer(data, dtype=np.uint8).ctypes.data, np.array(sizes), digests)
    return digests.tolist()


def library_digests(data, sizes):
    return [xxhash.xxh3_64_intdigest(data[:size]) for size in sizes]


@pytest.mark.parametrize("content", ["random", "zeros", "ones"])
def test_every_length_gives_the_library_s_digest(content):
    random = np.random.default_rng(0).bytes(1 << 20)
    data = {"random": random, "zeros": bytes(1 << 20), "ones": b"\xff" * (1 << 20)}[content]
    sizes = [*range(SHORT_BYTES + 1, 5001), (1 << 20) - 1, 1 << 20]
    assert compiled_digests(data, sizes) == library_digests(data, sizes)


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=SHORT_BYTES + 1, max_size=4000), st.integers(0, 63))
def test_any_content_at_any_address_gives_the_library_s_digest(data, offset):
    placed = bytes(offset) + data + b"what stands behind is not read"
    address = np.frombuffer(placed, dtype=np.uint8).ctypes.data + offset
    digests = np.zeros(1, dtype=np.uint64)
    digests_of(address, np.array([len(data)]), digests)
    assert digests.tolist() == [xxhash.xxh3_64_intdigest(data)]


# --- at rescoring ----------------------------------------------------------------------------------------------------

NUM_DOCUMENTS = 30


@pytest.fixture(scope="module", params=[(4, "fp16"), (60, "fp16"), (200, "fp16"), (100, "fp32")], ids=str)
def searched(request, tmp_path_factory):
    """An index that was scanned, so that its block is checked and copied; its vectors, and its file of views.

    Of 4 dims all documents are shorter than what is hashed by the compiled loop, of 60 some, of others none.
    """
    dim, dtype = request.param
    path = tmp_path_factory.mktemp("searched") / "x.mvx"
    counts = np.random.default_rng(1).integers(1, 5, NUM_DOCUMENTS)
    views = [unit(np.random.default_rng(n).standard_normal((count, dim))) for n, count in enumerate(counts)]
    with mvindex.create(path, dim=dim, dtype=dtype) as index:
        index.add_views([mvindex.Document(str(n), f"text {n}") for n in range(NUM_DOCUMENTS)], views)
        assert index.search(views[7][0], top_k=1).hits[0].id == "7"
        (file,) = (item for item in path.rglob("views-*") if item.is_file())
        yield index, views, file


@pytest.fixture(params=["compiled", "threads", "plain"])
def kernels(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(rescore, "has_numba", lambda: False)
    if request.param == "threads":
        for name, value in {"_VIEWS_PER_THREAD": 3, "_CHUNK_VIEWS": 19, "default_threads": lambda: 3}.items():
            monkeypatch.setattr(rescore, name, value)


def flip(file, byte, bit):
    with open(file, "r+b") as opened:
        opened.seek(byte)
        (value,) = opened.read(1)
        opened.seek(byte)
        opened.write(bytes([value ^ 1 << bit]))


@pytest.mark.usefixtures("kernels")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bit_that_turns_after_a_search_is_found_at_the_next(searched, data):
    index, views, file = searched
    row_bytes = file.stat().st_size // sum(map(len, views))
    damaged = data.draw(st.integers(0, NUM_DOCUMENTS - 1))
    begin = row_bytes * sum(map(len, views[:damaged]))
    byte = begin + data.draw(st.integers(0, row_bytes * len(views[damaged]) - 1))
    bit = data.draw(st.integers(0, 7))
    scoring = data.draw(st.sampled_from(["max", "drpq"]))
    queries = np.stack([rows[0] for rows in views[:3]])
    flip(file, byte, bit)
    try:
        with pytest.raises(DamagedIndex, match=f"the views of document row {damaged} do not match"):
            index.search(queries, top_k=NUM_DOCUMENTS, scoring=scoring)
    finally:
        flip(file, byte, bit)
    assert len(index.search(queries, top_k=NUM_DOCUMENTS, scoring=scoring)) == 3


@pytest.mark.usefixtures("kernels")
def test_damage_is_named_where_only_the_last_query_of_a_batch_meets_it(searched):
    index, views, file = searched
    last = NUM_DOCUMENTS - 1
    queries = np.stack([views[0][0], views[1][0], views[last][0]])
    last_byte = file.stat().st_size - 1
    flip(file, last_byte, 3)
    try:
        assert [result.hits[0].id for result in index.search(queries[:2], top_k=1)] == ["0", "1"]
        with pytest.raises(DamagedIndex, match=f"row {last} "):
            index.search(queries, top_k=1)
        with pytest.raises(DamagedIndex, match=f"row {last} "):
            index.search(queries, top_k=1, scoring="drpq", candidates=1)
    finally:
        flip(file, last_byte, 3)


def test_the_first_pair_of_each_document_is_the_one_that_is_checked():
    is_first = rescore._first_of_documents(np.array([5, 3, 5, 9, 3, 3, 0]))
    assert is_first.tolist() == [True, True, False, True, False, False, True]
    assert rescore._first_of_documents(np.empty(0, dtype=np.int64)).tolist() == []
