"""Views of a refreshed reader: where they begin is taken over from the older snapshot, as a new reader reads it."""

import numpy as np
import pytest

import mvindex
from mvindex.index import embedded_store_of
from mvindex.store import snapshot
from mvindex.testing import unit

DIM = 8


def documents(first, count):
    return [mvindex.Document(str(first + n), f"text {n}") for n in range(count)]


def views(count, seed):
    rng = np.random.default_rng(seed)
    return [unit(rng.standard_normal((each, DIM))) for each in rng.integers(1, 5, count)]


def starts(index):
    return embedded_store_of(index).snapshot.views.starts


@pytest.fixture
def path(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=DIM) as index:
        index.add_views(documents(0, 20), views(20, 1))
    return tmp_path / "x.mvx"


@pytest.mark.parametrize("was_read", [True, False], ids=["read before", "not read before"])
@pytest.mark.parametrize("added", [0, 1, 7])
def test_starts_after_a_refresh_are_those_of_a_new_reader(path, added, was_read):
    with mvindex.open(path) as reader, mvindex.open(path) as writer:
        before = starts(reader).copy() if was_read else None
        writer.add_views(documents(20, added), views(added, 2))
        writer.delete(ids=["3"])
        assert reader.refresh()
        with mvindex.open(path) as fresh:
            np.testing.assert_array_equal(starts(reader), starts(fresh))
        if was_read:
            np.testing.assert_array_equal(starts(reader)[:21], before)


def test_a_refresh_without_new_documents_makes_no_new_array(path):
    with mvindex.open(path) as reader, mvindex.open(path) as writer:
        before = starts(reader)
        writer.delete(ids=["3"])
        assert reader.refresh() and starts(reader) is before


def test_deleted_documents_are_read_again_only_where_some_were_deleted_since(path, monkeypatch):
    with mvindex.open(path) as reader, mvindex.open(path) as writer:
        writer.delete(ids=["3"])
        reader.refresh()
        checked = []
        known = snapshot.deleted_checksum
        monkeypatch.setattr(snapshot, "deleted_checksum", lambda rows: checked.append(len(rows)) or known(rows))
        for change, expected in (
            (lambda: writer.add_views(documents(20, 2), views(2, 2)), []),
            (lambda: writer.delete(ids=["5"]), [2]),
        ):
            change()
            checked.clear()
            assert reader.refresh() and checked == expected
            with mvindex.open(path) as fresh:
                alive = [embedded_store_of(each).snapshot.alive for each in (reader, fresh)]
            np.testing.assert_array_equal(*alive)


def test_the_document_of_a_view_is_found_whether_documents_are_even_or_not(tmp_path):
    rng = np.random.default_rng(4)
    for number, counts in enumerate([[3] * 40, [1] * 39 + [60], [60] + [1] * 39, rng.integers(1, 9, 40).tolist()]):
        with mvindex.create(tmp_path / f"{number}.mvx", dim=DIM) as index:
            index.add_views(documents(0, 40), [unit(rng.standard_normal((each, DIM))) for each in counts])
            owners = np.repeat(np.arange(40), counts)
            rows = rng.permutation(len(owners))
            found = embedded_store_of(index).snapshot.views.document_rows(rows)
        np.testing.assert_array_equal(found, owners[rows])
