"""Lists of ivf-pq that are read from their file: the same answers, from the lists looked at, and none from damage."""

import json
import shutil

import numpy as np
import pytest

import mvindex
from mvindex.errors import DamagedIndex
from mvindex.index import embedded_store_of
from mvindex.kernels import expecting_work, has_int8_products
from mvindex.search.local import EngineCache
from mvindex.testing import unit
from mvindex_connectors.engines import faiss_fast_scan, faiss_mapped

pytestmark = pytest.mark.skipif(not has_int8_products(), reason="the compiled scan needs AVX-512")

DIM, DOCUMENTS, VIEWS, NLIST = 24, 1500, 4, 32
QUERIES = np.random.default_rng(9).standard_normal((8, DIM)).astype(np.float32)
SEARCH = {"nprobe": 3, "k_factor": 15}


@pytest.fixture(autouse=True)
def loops_are_loaded():
    with expecting_work():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    rng = np.random.default_rng(8)
    views = unit(rng.standard_normal((DOCUMENTS, 1, DIM)) + 0.5 * rng.standard_normal((DOCUMENTS, VIEWS, DIM)))
    path = tmp_path_factory.mktemp("mapped") / "x.mvx"
    documents = [mvindex.Document(str(n), "t", metadata={"third": n % 3}) for n in range(DOCUMENTS)]
    with pytest.MonkeyPatch.context() as patched, mvindex.create(path, dim=DIM) as index:
        patched.setattr(faiss_mapped, "LEAST_BYTES", 0)
        index.add_views(documents, views)
        index.admin.build("ivf-pq", nlist=NLIST)
    return path


@pytest.fixture
def path(made, tmp_path):
    return shutil.copytree(made, tmp_path / "x.mvx")


def engine_file(path):
    (found,) = path.glob("generation-*/engine-*/index.faiss")
    return found


def opened(path):
    with mvindex.open(path) as index:
        return EngineCache().open(embedded_store_of(index).snapshot).with_search(SEARCH)


def answers(path):
    with mvindex.open(path) as index:
        batch = index.search(QUERIES, top_k=7)
        single = [index.search(each, top_k=7) for each in QUERIES]
        some = index.search(QUERIES, top_k=7, filter={"third": 1})
        return [[(hit.id, hit.score) for hit in result.hits] for result in [*batch, *single, *some]]


def test_answers_are_those_of_lists_in_memory(path, monkeypatch):
    mapped = answers(path)
    assert opened(path)._held.mapped is not None
    with monkeypatch.context() as patched:
        patched.setattr(faiss_mapped, "has_int8_products", lambda: False)
        assert opened(path)._held.mapped is None
        assert answers(path) == mapped
    with monkeypatch.context() as patched:
        # As while loops are compiled: Faiss has to have all lists.
        patched.setattr(faiss_fast_scan._LOOPS, "is_done", lambda *given, **options: False)
        whole, file = opened(path), engine_file(path)
        # The mapping is read, wherever the path leads by now.
        engine_file(path).rename(path / "moved")
        _, rows = whole.search(QUERIES, 50, None)
        (path / "moved").rename(file)
    assert whole._held.mapped._whole is not None
    whole.search(QUERIES, 50, None)
    assert whole._held.mapped._whole is None
    _, expected = opened(path).search(QUERIES, 50, None)
    shared = [len(set(some) & set(others)) for some, others in zip(rows.tolist(), expected.tolist(), strict=True)]
    assert min(shared) >= 47


def test_a_query_reads_and_checks_the_lists_that_it_looks_at_and_each_once(path):
    engine = opened(path)
    mapped = engine._held.mapped
    assert not mapped._is_checked.any()
    engine.search(QUERIES[:1], 10, None)
    assert mapped._is_checked.sum() == SEARCH["nprobe"]
    engine.search(QUERIES, 10, None)
    assert SEARCH["nprobe"] < mapped._is_checked.sum() <= len(QUERIES) * SEARCH["nprobe"]


def test_no_answer_is_given_from_a_damaged_list_and_others_are_answered(path):
    file, noted = engine_file(path), np.load(engine_file(path).with_name("lists.npy"))
    expected, sound = opened(path).search(QUERIES, 10, None), file.read_bytes()
    wrong = right = 0
    for number in range(0, NLIST, 3):
        begin, end = int(noted[number, 0]), int(noted[number + 1, 0])
        for place in (begin, begin + 8, end - 1):
            file.write_bytes(sound[:place] + bytes([sound[place] ^ 4]) + sound[place + 1 :])
            engine = opened(path)
            for each in range(len(QUERIES)):
                try:
                    scores, rows = engine.search(QUERIES[each : each + 1], 10, None)
                except DamagedIndex as err:
                    assert str(file) in str(err) and f"byte {begin}" in str(err)
                    wrong += 1
                else:
                    assert (rows == expected[1][each]).all() and (scores == expected[0][each]).all()
                    right += 1
    assert wrong > 10 and right > 10
    with mvindex.open(path) as index:
        assert [problem.file for problem in index.admin.verify().problems] == [str(file)]
        index.admin.build("ivf-pq", nlist=NLIST)
        assert index.admin.verify().is_sound


def test_damage_before_the_lists_a_file_that_was_cut_and_one_cut_later_are_refused(path):
    file, sound = engine_file(path), engine_file(path).read_bytes()
    for content in (sound[:100] + bytes([sound[100] ^ 1]) + sound[101:], sound[:-1]):
        file.write_bytes(content)
        with pytest.raises(DamagedIndex, match=r"index\.faiss"):
            opened(path)
    file.write_bytes(sound)
    engine = opened(path)
    with open(file, "r+b") as cut:
        cut.truncate(len(sound) // 2)
    with pytest.raises(DamagedIndex, match=r"index\.faiss"):
        engine.search(QUERIES, 10, None)


def test_the_note_of_the_lists_is_checked_itself_and_a_snapshot_has_it(path, tmp_path):
    with mvindex.open(path) as index:
        index.admin.snapshot(tmp_path / "copy.mvx")
    assert opened(tmp_path / "copy.mvx")._held.mapped is not None
    note = engine_file(path).with_name("lists.npy")
    content = note.read_bytes()
    note.write_bytes(content[:-3] + b"x" + content[-2:])
    with pytest.raises(DamagedIndex, match=r"lists\.npy"):
        opened(path)


def test_small_engines_are_read_whole(tmp_path):
    path = tmp_path / "small.mvx"
    with mvindex.create(path, dim=DIM) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(8)], np.repeat(QUERIES[:, None], 3, axis=1))
        index.admin.build("ivf-pq")
        settings = json.loads(json.dumps(embedded_store_of(index).settings["engine"]))
    assert list(settings["checksums"]) == ["index.faiss"]
    # A file that the catalog does not name has no say.
    engine_file(path).with_name("lists.npy").write_bytes(b"stray")
    assert opened(path)._held.mapped is None


@pytest.mark.parametrize("noted", [[], [1, 2, 3], [[0, 1, 2], [9, 1, 2]], [[1.5, 1, 2]]])
def test_a_note_of_another_form_is_damage(tmp_path, noted):
    np.save(tmp_path / "lists.npy", noted)
    with pytest.raises(DamagedIndex, match=r"lists\.npy: expected .*mvindex build"):
        faiss_mapped._read_note(tmp_path / "lists.npy")
