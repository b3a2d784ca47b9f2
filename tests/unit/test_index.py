"""The embedded index: atomic writes, snapshots, one writer, what it refuses, and what survives a torn write."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest

import mvindex
from mvindex.errors import (
    ConfigError,
    DamagedIndex,
    DocumentError,
    EncoderError,
    IndexLocked,
    QueryError,
    StaleReader,
    StoreError,
    Unsupported,
)
from mvindex.index import remove_untouched
from mvindex.ingest import IngestHooks
from mvindex.testing import unit


def documents(count, text="text"):
    return [mvindex.Document(str(n), f"{text} {n}") for n in range(count)]


def vectors(count, dim=4, seed=0):
    return unit(np.random.default_rng(seed).standard_normal((count, 2, dim)))


def by_length(texts):
    """An encoder that a test can foresee: two views of each text, from its length."""
    return np.array([[[len(text), 1.0], [1.0, len(text)]] for text in texts])


def one_vector(texts):
    return np.array([[float(len(text)), 1.0] for text in texts])


@pytest.fixture
def index(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index:
        index.add_views(documents(10), vectors(10))
        yield index


def test_documents_come_back_whole(index):
    metadata = {"year": 1990, "tags": ["a", "ü"], "nested": {"x": None}}
    index.add_views([mvindex.Document("naïve \U0001f600", "text \u2028 more", "title", metadata)], vectors(1))
    found = index.get("naïve \U0001f600")
    assert (found.id, found.text, found.title) == ("naïve \U0001f600", "text \u2028 more", "title")
    assert found.metadata == metadata
    assert index.get("not there") is None
    assert "3" in index and "not there" not in index
    assert [document.id for document in index][:2] == ["0", "1"]


def test_an_index_opened_again_is_the_same(index, tmp_path):
    query = np.ones(4)
    before = index.search(query, top_k=10)
    with mvindex.open(tmp_path / "x.mvx") as again:
        assert again.search(query, top_k=10) == before
        assert len(again) == 10


def test_a_reader_keeps_its_snapshot_until_it_refreshes(index, tmp_path):
    with mvindex.open(tmp_path / "x.mvx") as reader:
        index.add_views([mvindex.Document("3", "new text")], vectors(1, seed=9))
        index.delete(ids="4")
        assert reader.get("3").text == "text 3"
        assert reader.get("4").text == "text 4"
        assert len(reader) == 10
        found = reader.search(np.ones(4), top_k=10)
        assert {hit.id: hit.text for hit in found.hits}["3"] == "text 3"
        assert reader.refresh()
        assert reader.get("3").text == "new text"
        assert reader.get("4") is None
        assert not reader.refresh()


def test_a_second_writer_is_refused_with_the_holder_named(index, tmp_path):
    with mvindex.open(tmp_path / "x.mvx") as other, index._store.writing():
        with pytest.raises(IndexLocked, match=f"process {os.getpid()} on "):
            other.delete(ids="1")
    with mvindex.open(tmp_path / "x.mvx") as other:
        assert other.delete(ids="1") == 1


def test_the_lock_of_a_killed_writer_does_not_block(index, tmp_path):
    code = (
        "import mvindex, os, sys\n"
        "index = mvindex.open(sys.argv[1])\n"
        "with index._store.writing():\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.mvx")], check=False)
    assert done.returncode == -9
    assert index.delete(ids="1") == 1


def test_an_error_in_the_middle_of_an_add_keeps_whole_batches_only(tmp_path, monkeypatch):
    monkeypatch.setattr("mvindex.ingest.CHUNK_DOCUMENTS", 8)

    def failing():
        yield from documents(20)
        raise RuntimeError("the source broke")

    encoder = mvindex.CallableEncoder(by_length, query_function=one_vector, name="by_length")
    with mvindex.create(tmp_path / "y.mvx", encoder=encoder) as index:
        with pytest.raises(RuntimeError):
            index.add(failing())
        assert len(index) == 16
        report = index.add(documents(20))
        assert (report.added, report.unchanged, report.replaced) == (4, 16, 0)


def test_a_failing_encoder_stores_nothing_of_its_batch(tmp_path):
    def broken(texts):
        return np.full((len(texts), 2), np.nan)

    encoder = mvindex.CallableEncoder(broken, name="broken", dim=2)
    with mvindex.create(tmp_path / "y.mvx", encoder=encoder) as index:
        with pytest.raises(EncoderError):
            index.add(documents(5))
        assert len(index) == 0


def test_a_stopped_run_ends_at_a_batch_and_can_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr("mvindex.ingest.CHUNK_DOCUMENTS", 8)
    seen = []
    hooks = IngestHooks(on_progress=seen.append, should_stop=lambda: sum(seen) >= 16)
    encoder = mvindex.CallableEncoder(by_length, query_function=one_vector, name="by_length")
    with mvindex.create(tmp_path / "y.mvx", encoder=encoder) as index:
        report = index.add(documents(40), hooks=hooks)
        assert report.stopped and report.added == len(index) == 16
        assert index.add(documents(40)).added == 24


def test_an_interrupted_run_resumed_equals_an_uninterrupted_one(tmp_path, monkeypatch):
    monkeypatch.setattr("mvindex.ingest.CHUNK_DOCUMENTS", 8)
    calls = []

    def whole_chunks(texts):
        calls.append(len(texts))
        return by_length(texts)

    encoder = mvindex.CallableEncoder(whole_chunks, query_function=one_vector, name="whole")
    with mvindex.create(tmp_path / "a.mvx", encoder=encoder) as straight:
        straight.add(documents(30))
    first_run = list(calls)
    calls.clear()
    with mvindex.create(tmp_path / "b.mvx", encoder=encoder) as broken:
        broken.add(documents(30)[:16])
        broken.add(documents(30))
        assert calls == first_run
    for name in ("views-000001.f16", "rows-000001.bin"):
        assert (tmp_path / "a.mvx" / name).read_bytes() == (tmp_path / "b.mvx" / name).read_bytes()


def test_bytes_of_a_torn_append_are_cut_at_the_next_write(index, tmp_path):
    for name in ("views-000001.f16", "rows-000001.bin"):
        with open(tmp_path / "x.mvx" / name, "ab") as file:
            file.write(b"\xff" * 777)
    with mvindex.open(tmp_path / "x.mvx") as again:
        again.add_views([mvindex.Document("new", "t")], vectors(1, seed=3))
        result = again.search(vectors(1, seed=3)[0, 0], top_k=1)
        assert result.hits[0].id == "new"
        assert len(again.search(np.ones(4), top_k=20).hits) == 11


def test_damaged_views_are_named_never_answered_from(index, tmp_path):
    with open(tmp_path / "x.mvx" / "views-000001.f16", "r+b") as file:
        file.write(b"\x00\x3c\x00\x3c")
    with mvindex.open(tmp_path / "x.mvx") as again, pytest.raises(DamagedIndex, match="views-000001.f16"):
        again.search(np.ones(4))


def test_an_id_given_twice_in_one_call_names_both_places(index):
    twice = [mvindex.Document("a", "x"), mvindex.Document("b", "y"), mvindex.Document("a", "z")]
    with pytest.raises(DocumentError, match="document 3: id 'a' stands at document 1"):
        index.add_views(twice, vectors(3))
    assert len(index) == 10


def test_ids_given_twice_are_found_across_batches(index, monkeypatch):
    monkeypatch.setattr("mvindex.ingest.CHUNK_DOCUMENTS", 4)
    with pytest.raises(DocumentError, match="document 10: id 'n0' stands at document 1"):
        index.add_views([mvindex.Document(f"n{n % 9}", "x") for n in range(12)], vectors(12))


def test_new_metadata_alone_is_not_encoded_again(tmp_path):
    calls = []

    def counting(texts):
        calls.append(len(texts))
        return one_vector(texts)

    with mvindex.create(tmp_path / "y.mvx", encoder=mvindex.CallableEncoder(counting, name="c", dim=2)) as index:
        index.add(documents(5))
        calls.clear()
        report = index.add([mvindex.Document("1", "text 1", metadata={"lang": "en"}), mvindex.Document("2", "text 2")])
        assert (report.updated, report.unchanged, calls) == (1, 1, [])
        assert index.get("1").metadata == {"lang": "en"}


def test_views_that_cannot_be_held_are_refused_by_name(index):
    good = vectors(3)
    for spoil, message in (
        (lambda v: v * np.nan, "NaN"),
        (lambda v: v * 1e6, "overflows fp16"),
        (lambda v: v * 1e-7, "loses more than 1e-3"),
        (lambda v: v * 1e19, "norm above 1e18"),
    ):
        spoilt = good.copy()
        spoilt[1] = spoil(good[1])
        with pytest.raises(StoreError, match=f"document 'b': view 0 .*{message}"):
            index.add_views([mvindex.Document(name, "x") for name in "abc"], spoilt)
    assert len(index) == 10


@pytest.mark.parametrize(
    "views",
    [np.ones((2, 1, 5)), np.ones((2, 0, 4)), [np.ones((1, 4)), np.ones((1, 4)), np.ones((1, 4))], [np.ones((1, 4))],
     [["a"], ["b"]], np.ones((2, 1, 1, 4)), [np.ones((1, 4)), None]],
)  # fmt: skip
def test_views_of_another_shape_are_refused(index, views):
    with pytest.raises(EncoderError):
        index.add_views(documents(2), views)
    assert len(index) == 10


def test_any_float_type_and_norm_is_taken(tmp_path):
    with mvindex.create(tmp_path / "y.mvx", dim=3, dtype="fp32") as index:
        index.add_views([mvindex.Document("a", "x")], [np.array([[1e17, 0, 0]])])
        index.add_views([mvindex.Document("b", "x")], [np.array([[1, 2, 3]], dtype=np.int64)])
        index.add_views([mvindex.Document("c", "x")], [np.array([[1e-20, 0, 0]], dtype=np.float64)])
        assert [hit.id for hit in index.search([1.0, 0, 0], top_k=3).hits] == ["a", "b", "c"]
        assert index.search([1.0, 0, 0], top_k=3).hits[2].score == np.float32(1e-20)


def test_the_arguments_of_create_and_open_are_checked(tmp_path):
    for wrong in ({}, {"dim": 3, "encoder": one_vector}, {"dim": 0}, {"dim": True}, {"dim": 3, "dtype": "int8"}):
        with pytest.raises(ConfigError):
            mvindex.create(tmp_path / "z.mvx", **wrong)
    with pytest.raises(TypeError):
        mvindex.create(tmp_path / "z.mvx", dim=3, colour="red")
    assert not (tmp_path / "z.mvx").exists()
    mvindex.create(tmp_path / "z.mvx", dim=3).close()
    with pytest.raises(ConfigError, match="exists"):
        mvindex.create(tmp_path / "z.mvx", dim=3)
    with pytest.raises(StoreError, match="no mvindex index"):
        mvindex.open(tmp_path / "nothing.mvx")
    with pytest.raises(Unsupported, match="URL"):
        mvindex.open("grpc://localhost:1/x")


def test_an_index_of_given_vectors_takes_vectors_only(index):
    with pytest.raises(QueryError, match="given vectors"):
        index.search("a text")
    with pytest.raises(QueryError, match="given vectors"):
        index.add(documents(1))


def test_an_index_of_a_callable_wants_the_same_callable_again(tmp_path):
    with mvindex.create(tmp_path / "y.mvx", encoder=one_vector) as index:
        index.add(documents(3))
    with mvindex.open(tmp_path / "y.mvx") as again, pytest.raises(ConfigError):
        again.search("text")
    with pytest.raises(ConfigError, match="made with the encoder"):
        mvindex.open(tmp_path / "y.mvx", encoder=mvindex.CallableEncoder(one_vector, name="other"))
    with mvindex.open(tmp_path / "y.mvx", encoder=one_vector) as again:
        assert len(again.search("text", top_k=2).hits) == 2


def test_an_empty_text_is_encoded_by_its_title_and_with_neither_refused(tmp_path):
    with mvindex.create(tmp_path / "y.mvx", encoder=one_vector) as index:
        index.add([mvindex.Document("1", "", "only a title")])
        assert index.search("x", top_k=1).hits[0].title == "only a title"
        with pytest.raises(DocumentError, match="both empty"):
            index.add([mvindex.Document("2", " \u200b\n", "")])


def test_explain_lists_every_view_best_first(index):
    query = vectors(10)[3, 1]
    scored = index.explain(query, "3")
    assert [view.slot for view in scored] == [1, 0]
    assert scored[0].score == index.search(query, top_k=1).hits[0].score
    with pytest.raises(QueryError, match="no document"):
        index.explain(query, "nope")


def test_delete_wants_one_kind_of_choice(index):
    for wrong in ({}, {"ids": ["1"], "filter": {"id": "1"}}):
        with pytest.raises(QueryError):
            index.delete(**wrong)
    assert index.delete(filter={"id": {"in": ["1", "2"]}}) == 2
    assert index.delete(ids=["1", "3", "3"]) == 1
    assert len(index) == 7


def test_searches_from_many_threads_agree(index):
    expected = index.search(np.ones(4), top_k=5)
    found = []

    def search():
        found.extend(index.search(np.ones(4), top_k=5) for _ in range(20))

    threads = [threading.Thread(target=search) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 120 and all(result == expected for result in found)


def test_a_reader_in_another_process_never_sees_part_of_a_document(tmp_path):
    """A writer replaces documents over and over; text, title and views carry the version, and must agree."""
    with mvindex.create(tmp_path / "w.mvx", dim=2) as index:
        index.add_views(version(0), version_views(0))
        code = (
            "import mvindex, sys, time\n"
            "index = mvindex.open(sys.argv[1])\n"
            "seen = set()\n"
            "end = time.time() + 60\n"
            "while len(seen) < 12 and time.time() < end:\n"
            "    index.refresh()\n"
            "    result = index.search([1.0, 0.0], top_k=50)\n"
            "    assert len(result.hits) == 20, len(result.hits)\n"
            "    for hit in result.hits:\n"
            "        assert hit.text == hit.title == str(int(hit.score)), (hit.text, hit.title, hit.score)\n"
            "    assert len({hit.text for hit in result.hits}) == 1, 'a batch is seen whole or not at all'\n"
            "    seen.add(result.hits[0].text)\n"
            "print(len(seen))\n"
        )
        reader = subprocess.Popen([sys.executable, "-c", code, str(index.path)], stdout=subprocess.PIPE, text=True)
        number = 0
        while reader.poll() is None:
            number += 1
            index.add_views(version(number), version_views(number))
        out, _ = reader.communicate()
    assert reader.returncode == 0
    assert int(out) == 12


def version(number):
    return [mvindex.Document(str(n), str(number), str(number)) for n in range(20)]


def version_views(number):
    return np.full((20, 3, 2), [float(number), 0.0])


def test_building_is_swapped_in_and_damage_of_an_engine_is_named(index, tmp_path):
    index.build(kind="flat")
    assert index.info().kind == "flat"
    (engine,) = (tmp_path / "x.mvx").glob("engine-*")
    with open(engine / "index.faiss", "r+b") as file:
        file.seek(60)
        file.write(b"\xff\xff")
    with mvindex.open(tmp_path / "x.mvx") as again:
        with pytest.raises(DamagedIndex, match="mvindex build"):
            again.search(np.ones(4))
        assert again.search(np.ones(4), exact=True).exact
        again.build(kind="hnsw")
        assert len(again.search(np.ones(4)).hits) == 10
    assert [path.name[:11] for path in (tmp_path / "x.mvx").glob("engine-*")] == ["engine-hnsw"]
    with pytest.raises(ConfigError, match="kind 'ivf'"):
        index.build(kind="ivf")


def test_info_says_what_the_index_is(index):
    index.delete(ids="0")
    info = index.info()
    assert (info.documents, info.views, info.num_dead, info.dim, info.dtype) == (9, 18, 1, 4, "fp16")
    assert (info.kind, info.encoder, info.fresh_documents) == ("exact", None, 0)
    assert info.size_bytes > 0


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("texts", "text = 'text 3.'"),
        ("texts", "title = 'x'"),
        ("documents", "id = '33'"),
        ("metadata", "json = '{\"a\":1}'"),
        ("metadata", "json = 'no JSON'"),
    ],
)
def test_a_damaged_catalog_row_is_named(index, tmp_path, table, change):
    connection = sqlite3.connect(tmp_path / "x.mvx" / "catalog.sqlite")
    with connection:
        connection.execute(f"UPDATE {table} SET {change} WHERE doc_row = 3")
    connection.close()
    with mvindex.open(tmp_path / "x.mvx") as again, pytest.raises(DamagedIndex, match="row 3"):
        again.search(np.ones(4), top_k=10)


def test_a_database_of_another_program_is_refused(tmp_path):
    (tmp_path / "y.mvx").mkdir()
    for content in (b"x" * 5000, b""):
        (tmp_path / "y.mvx" / "catalog.sqlite").write_bytes(content)
        with pytest.raises(StoreError, match="catalog.sqlite"):
            mvindex.open(tmp_path / "y.mvx")


@pytest.mark.parametrize(("views_each", "count", "dim"), [(7, 1171, 384), (8, 683, 768), (1, 1, 3), (300, 1, 2)])
def test_a_last_document_that_crosses_a_scan_block_is_found(tmp_path, views_each, count, dim):
    """1,171 documents of 7 views are 8,197 views: the stretch of 8,192 ends inside the last document."""
    vectors = np.random.default_rng(0).standard_normal((count, views_each, dim)).astype(np.float32)
    with mvindex.create(tmp_path / "y.mvx", dim=dim) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(count)], vectors)
        result = index.search(vectors[-1, -1], top_k=count)
        assert len(result.hits) == count
        assert result.hits[0].id == str(count - 1)


def test_a_reader_whose_engine_was_replaced_scans_its_snapshot(index, tmp_path):
    index.build(kind="flat")
    with mvindex.open(tmp_path / "x.mvx") as reader:
        index.build(kind="hnsw")
        result = reader.search(np.ones(4), top_k=10)
        assert len(result.hits) == 10 and result.exact
        assert reader.info().kind == "flat" and reader.refresh() and reader.info().kind == "hnsw"
        assert len(reader.search(np.ones(4), top_k=10).hits) == 10


def test_a_forked_child_reads_with_connections_of_its_own(index):
    expected = index.search(np.ones(4), top_k=3)
    child = os.fork()
    if child == 0:
        same = index.get("3") is not None and index.search(np.ones(4), top_k=3) == expected
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert index.search(np.ones(4), top_k=3) == expected


def test_an_index_made_anew_at_the_same_path_is_never_mixed_with_the_old_one(index, tmp_path):
    shutil.rmtree(tmp_path / "x.mvx")
    with mvindex.create(tmp_path / "x.mvx", dim=4) as new:
        new.add_views([mvindex.Document("new", "t")], vectors(1, seed=5))
        for use in (
            lambda: index.search(np.ones(4)),
            lambda: index.get("3"),
            lambda: index.refresh(),
            lambda: index.delete(ids="new"),
            lambda: index.add_views([mvindex.Document("old", "t")], vectors(1)),
        ):
            with pytest.raises(StaleReader, match="another index was made here"):
                use()
        assert [document.id for document in new] == ["new"]


def test_an_untouched_index_is_removed_only_if_nobody_stored_anything(tmp_path):
    alone = mvindex.create(tmp_path / "a.mvx", dim=4)
    remove_untouched(alone)
    assert not (tmp_path / "a.mvx").exists()
    first = mvindex.create(tmp_path / "b.mvx", dim=4)
    with mvindex.open(tmp_path / "b.mvx") as second:
        second.add_views(documents(2), vectors(2))
        remove_untouched(first)
        assert len(second.search(np.ones(4)).hits) == 2


def test_a_refresh_in_another_thread_never_brings_an_older_state_back(index):
    stop = threading.Event()

    def refresh():
        while not stop.is_set():
            index.refresh()

    threads = [threading.Thread(target=refresh) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(60):
            index.add_views([mvindex.Document(f"n{number}", "t")], vectors(1, seed=number))
            assert f"n{number}" in index
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(index) == 70


def test_a_nul_in_an_id_never_reaches_another_document(index):
    for use in (
        lambda: index.delete(ids="1\0zzz"),
        lambda: index.get("1\0"),
        lambda: index.delete(filter={"id": "1\0"}),
    ):
        with pytest.raises(QueryError, match="NUL"):
            use()
    assert len(index) == 10
