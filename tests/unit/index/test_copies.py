"""Copies and pickles of an open index: each is the index opened again, in this process or another."""

import copy
import multiprocessing
import pickle  # noqa: TID251 - what joblib and DataLoader do

import numpy as np
import pytest

import mvindex
from mvindex.errors import StoreError
from mvindex.index import embedded_store_of
from tests.helpers.index_examples import documents, vectors


def lengths(texts):
    return np.array([[len(text), text.count("a"), 1.0] for text in texts], dtype=np.float32)


def best_ids(index):
    """Return what the index finds; called in another process."""
    return [hit.id for hit in index.search(np.ones(4), top_k=3).hits]


@pytest.mark.parametrize("copied", [lambda index: pickle.loads(pickle.dumps(index)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("shards", [None, 2])
def test_a_copy_is_the_index_opened_again(tmp_path, monkeypatch, copied, shards):
    monkeypatch.chdir(tmp_path)
    with mvindex.create("x.mvx", dim=4, shards=shards) as index:
        index.add_views(documents(10), vectors(10))
        # A relative path means the same directory elsewhere.
        monkeypatch.chdir("/")
        with copied(index) as same:
            assert same.path == index.path and best_ids(same) == best_ids(index)
            index.delete(ids="3")
            assert same.get("3") is not None and same.refresh() and same.get("3") is None
        assert len(index) == 9


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_process_opens_the_index_again(index, method):
    expected = best_ids(index)
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(best_ids, (index,)) == expected
    assert best_ids(index) == expected


@pytest.mark.full
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_read_the_index(index, method):
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader(Texts(index), batch_size=None, num_workers=2, multiprocessing_context=method)
    assert list(loader) == [f"text {n}" for n in range(10)]


class Texts:
    """A data set of the texts of an index."""

    def __init__(self, index):
        self._index = index

    def __len__(self):
        return 10

    def __getitem__(self, number):
        return self._index.get(str(number)).text


def test_a_function_goes_along_and_the_choices_of_opening_do(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", encoder=lengths) as index:
        index.add([mvindex.Document("a", "aaa"), mvindex.Document("b", "b")])
        with pickle.loads(pickle.dumps(index)) as same:
            assert same.search("aaa", top_k=1).hits[0].id == "a"
    mvindex.create(tmp_path / "s.mvx", dim=4, shards=3).close()
    next((tmp_path / "s.mvx").glob("shard-00001*")).rename(tmp_path / "away")
    with mvindex.open(tmp_path / "s.mvx", allow_partial=True) as part, copy.deepcopy(part) as same:
        assert same.missing_shards == (1,)


def test_an_index_in_the_middle_of_a_write_and_a_closed_one_say_why_they_cannot_be_pickled(index):
    with embedded_store_of(index).writing(), pytest.raises(StoreError, match=r"in the middle of a write.*after"):
        pickle.dumps(index)
    index.close()
    with pytest.raises(StoreError, match="was closed"):
        pickle.dumps(index)
