"""Views are verified when a process first reads them, then trusted; damage before that is named, however read."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mvindex
from mvindex.errors import DamagedIndex
from mvindex.index import embedded_store_of
from mvindex.kernels import has_numba
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.search import parts
from mvindex.search.parts import score_pairs
from mvindex.search.ranking import Pairs
from mvindex.store import views as store_views
from mvindex.store.snapshot import read_snapshot
from mvindex.testing import unit

NUM_DOCUMENTS = 30


@pytest.fixture(scope="module", params=[(4, "fp16"), (200, "fp16"), (100, "fp32")], ids=str)
def stored(request, tmp_path_factory):
    """An open index, its vectors, and its file of views."""
    dim, dtype = request.param
    path = tmp_path_factory.mktemp("stored") / "x.mvx"
    counts = np.random.default_rng(1).integers(1, 5, NUM_DOCUMENTS)
    vectors = [unit(np.random.default_rng(n).standard_normal((count, dim))) for n, count in enumerate(counts)]
    with mvindex.create(path, dim=dim, dtype=dtype) as index:
        index.add_views([mvindex.Document(str(n), f"text {n}") for n in range(NUM_DOCUMENTS)], vectors)
        (file,) = (item for item in path.rglob("views-*") if item.is_file())
        yield index, vectors, file


@pytest.fixture(params=["compiled", "threads", "plain"])
def kernels(request, monkeypatch):
    if request.param != "plain" and not has_numba():
        pytest.skip("NOT RUN: needs numba (the extra fast)")
    if request.param == "plain":
        monkeypatch.setattr(parts, "has_numba", lambda: False)
    if request.param == "threads":
        for name, value in {"_VIEWS_PER_THREAD": 3, "_CHUNK_VIEWS": 19, "default_threads": lambda: 3}.items():
            monkeypatch.setattr(parts, name, value)


@pytest.fixture
def num_hashed(monkeypatch):
    """The number of documents whose checksum was taken, in a list of one."""
    counts, hashed = [0], store_views.range_checksums

    def counting(data, begins, ends):
        counts[0] += len(begins)
        return hashed(data, begins, ends)

    monkeypatch.setattr(store_views, "range_checksums", counting)
    return counts


def unread(index):
    """The index's state, as a process sees it that has read nothing of it."""
    return read_snapshot(embedded_store_of(index).snapshot.source)


def flip(file, byte, bit):
    with open(file, "r+b") as opened:
        opened.seek(byte)
        (value,) = opened.read(1)
        opened.seek(byte)
        opened.write(bytes([value ^ 1 << bit]))


def score(views, vectors, doc_rows, scoring="max"):
    queries = np.stack([rows[0] for rows in vectors[:2]]).astype(np.float32)
    rows = np.array(doc_rows, dtype=np.int64)
    pairs = Pairs(np.tile(rows, 2), np.repeat([0, 1], len(rows)))
    return score_pairs(views, queries, pairs, Scoring(Aggregate(scoring), 0.1))


@pytest.mark.usefixtures("kernels")
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bit_that_turned_before_the_first_read_is_named_at_every_read(stored, data):
    index, vectors, file = stored
    row_bytes = file.stat().st_size // sum(map(len, vectors))
    damaged = data.draw(st.integers(0, NUM_DOCUMENTS - 1))
    begin = row_bytes * sum(map(len, vectors[:damaged]))
    byte = begin + data.draw(st.integers(0, row_bytes * len(vectors[damaged]) - 1))
    bit, scoring = data.draw(st.integers(0, 7)), data.draw(st.sampled_from(["max", "drpq"]))
    views = unread(index).views
    flip(file, byte, bit)
    try:
        others = [row for row in range(NUM_DOCUMENTS) if row != damaged]
        score(views, vectors, others, scoring)
        for _ in range(2):
            with pytest.raises(DamagedIndex, match=f"the views of document row {damaged} do not match"):
                score(views, vectors, range(NUM_DOCUMENTS), scoring)
            with pytest.raises(DamagedIndex, match=f"row {damaged} "):
                views.fetch(np.array([damaged]))
    finally:
        flip(file, byte, bit)
    score(views, vectors, range(NUM_DOCUMENTS), scoring)


def test_damage_before_opening_is_named_by_a_search(stored):
    index, vectors, file = stored
    flip(file, file.stat().st_size - 1, 3)
    try:
        with mvindex.open(index.path) as damaged, pytest.raises(DamagedIndex, match="views-000001"):
            damaged.search(vectors[0][0], top_k=1)
    finally:
        flip(file, file.stat().st_size - 1, 3)


@pytest.mark.usefixtures("kernels")
def test_a_document_is_hashed_once_a_process_and_generation(stored, num_hashed):
    index, vectors, _ = stored
    views = unread(index).views
    for doc_rows in ([3, 5], [5, 3, 7], [7], range(10)):
        score(views, vectors, doc_rows)
    assert num_hashed == [10]
    later = read_snapshot(embedded_store_of(index).snapshot.source, embedded_store_of(index).snapshot)
    later.views.fetch(np.arange(NUM_DOCUMENTS))
    again = read_snapshot(embedded_store_of(index).snapshot.source, later)
    before = num_hashed[0]
    again.views.fetch(np.arange(NUM_DOCUMENTS))
    score(again.views, vectors, range(NUM_DOCUMENTS))
    assert num_hashed == [before]


def test_a_later_snapshot_checks_what_was_added_and_a_new_generation_everything(tmp_path, num_hashed):
    vectors = unit(np.random.default_rng(0).standard_normal((12, 2, 8)))
    documents = [mvindex.Document(str(n), "t") for n in range(12)]
    with mvindex.create(tmp_path / "x.mvx", dim=8) as index:
        index.add_views(documents[:10], vectors[:10])

        def hashed_by_a_search():
            before = num_hashed[0]
            assert len(index.search(vectors[0, 0], top_k=12).hits) == len(index)
            return num_hashed[0] - before

        assert [hashed_by_a_search(), hashed_by_a_search()] == [10, 0]
        index.add_views(documents[10:], vectors[10:])
        assert [hashed_by_a_search(), hashed_by_a_search()] == [2, 0]
        index.delete(ids="0")
        assert hashed_by_a_search() == 0
        index.admin.compact()
        assert [hashed_by_a_search(), hashed_by_a_search()] == [11, 0]
        assert embedded_store_of(index).snapshot.views._is_verified.nbytes == 11


def test_threads_that_read_the_same_documents_first_agree(stored):
    index, vectors, _ = stored
    views = unread(index).views
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: score(views, vectors, range(NUM_DOCUMENTS)).scores.tolist(), range(32)))
    assert all(scores == found[0] for scores in found)
    assert views._is_verified.all()
