"""A shard that is missing or damaged: an error that names it, or an answer that says what it lacks."""

import shutil

import numpy as np
import pytest

import mvindex
from mvindex.errors import DamagedIndex, StoreError
from mvindex.store.shard_layout import shard_of
from mvindex.testing import assert_same, brute_force
from tests.helpers.shard_examples import DIM, corpus

QUERY = np.arange(1, DIM + 1).astype(np.float32)


@pytest.fixture
def path(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=DIM, shards=3) as index:
        index.add_views(*corpus(60))
    return tmp_path / "x.mvx"


def shard_directory(path, number):
    return path / f"shard-0000{number}-of-00003"


def spoil_views(path, number):
    """Every byte of the shard's views is another one."""
    (file,) = shard_directory(path, number).glob("generation-*/views-*")
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))


def remove(path, number):
    shutil.rmtree(shard_directory(path, number))


def spoil_catalog(path, number):
    (file,) = shard_directory(path, number).glob("generation-*/catalog.sqlite")
    file.write_bytes(b"no database" * 100)


def check_partial(index):
    """Check that the answer is brute force over the documents of the other shards, and says so."""
    documents, views = corpus(60)
    left = {d.id: rows for d, rows in zip(documents, views, strict=True) if shard_of(d.id, 3) != 1}
    places = {f"d{n}": n for n in range(60)}
    result = index.search(QUERY, top_k=100)
    assert (result.exact, result.missing_shards) == (False, (1,))
    assert_same(result, brute_force(left, QUERY, 100, places))


@pytest.mark.parametrize("harm", [remove, spoil_catalog])
def test_a_shard_that_cannot_be_opened(path, harm):
    harm(path, 1)
    with pytest.raises(StoreError, match="shard 1 of 3: .*shard-00001-of-00003"):
        mvindex.open(path)
    with mvindex.open(path, allow_partial=True) as index:
        check_partial(index)
        assert index.missing_shards == index.info().missing_shards == (1,)
        assert len(index) == index.info().documents == sum(shard_of(f"d{n}", 3) != 1 for n in range(60))


def test_a_shard_whose_damage_shows_in_a_search(path):
    spoil_views(path, 1)
    with mvindex.open(path) as index, pytest.raises(DamagedIndex, match="shard 1 of 3: .*shard-00001-of-00003"):
        index.search(QUERY)
    with mvindex.open(path, allow_partial=True) as index:
        check_partial(index)
        check_partial(index)


def test_what_belongs_to_a_missing_shard_is_not_called_absent(path):
    remove(path, 1)
    gone = next(f"d{n}" for n in range(60) if shard_of(f"d{n}", 3) == 1)
    there = next(f"d{n}" for n in range(60) if shard_of(f"d{n}", 3) == 2)
    with mvindex.open(path, allow_partial=True) as index:
        assert index.get(there).id == there and there in index
        with pytest.raises(StoreError, match=f"{gone!r} belongs to a shard that is missing: shard 1 of 3"):
            index.get(gone)
        with pytest.raises(StoreError, match="missing"):
            assert gone in index


def test_nothing_is_written_to_an_index_that_lacks_a_shard(path):
    remove(path, 1)
    with mvindex.open(path, allow_partial=True) as index:
        writes = (
            lambda: index.add_views(*corpus(3, prefix="e")),
            lambda: index.delete(ids="d1"),
            lambda: index.delete(filter={"even": True}),
            lambda: index.admin.build("flat"),
            lambda: index.admin.tune(),
            lambda: index.admin.compact(),
            lambda: index.admin.snapshot(path.parent / "copy.mvx"),
        )
        for write in writes:
            with pytest.raises(StoreError, match="needs all 3 shards"):
                write()


def test_an_index_of_which_nothing_is_left_is_an_error(path):
    for number in range(3):
        remove(path, number)
    with pytest.raises(StoreError, match="shard 0 of 3"):
        mvindex.open(path)
    with pytest.raises(StoreError, match="none of its 3 shards can be opened"):
        mvindex.open(path, allow_partial=True)


def test_all_shards_damaged_is_an_error_even_where_parts_are_allowed(path):
    for number in range(3):
        spoil_views(path, number)
    with mvindex.open(path, allow_partial=True) as index, pytest.raises(DamagedIndex, match="shard 2 of 3"):
        index.search(QUERY)
