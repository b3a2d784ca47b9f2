"""Snapshots that are made from older ones, or of what was just written, are those that a new reader reads."""

import numpy as np
import pytest

import mvindex
from mvindex.index import embedded_store_of
from mvindex.ingest import CHUNK_DOCUMENTS, IngestHooks
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


def add_and_refresh(index):
    """Add in two commits, and show the first one before the second."""
    many = documents(20, CHUNK_DOCUMENTS + 1)
    hooks = IngestHooks(on_progress=lambda _: index.refresh())
    index.add_views([*many, *documents(3, 2)], views(len(many) + 2, 3), hooks=hooks)


WRITES = {
    "added": lambda index: index.add_views(documents(20, 3), views(3, 2)),
    "replaced": lambda index: index.add_views(documents(5, 3), views(3, 2)),
    "replaced in two commits": add_and_refresh,
    "deleted": lambda index: index.delete(ids=["3", "7"]),
    "metadata": lambda index: index.update("4", metadata={"lang": "en"}),
    "terms": lambda index: index.admin.set_lexical("english"),
    "fields": lambda index: index.admin.set_filter_fields({"lang": "text"}),
    "built": lambda index: index.build("ivf-flat"),
    "compacted": lambda index: index.compact(),
}


@pytest.mark.parametrize("second", WRITES)
@pytest.mark.parametrize("first", WRITES)
def test_what_was_written_shows_as_a_new_reader_reads_it(path, first, second):
    with mvindex.open(path) as index:
        for write in (WRITES[first], WRITES[second]):
            write(index)
            written = embedded_store_of(index).snapshot
            with mvindex.open(path) as fresh:
                read = embedded_store_of(fresh).snapshot
                assert (written.state, written.settings) == (read.state, read.settings)
                np.testing.assert_array_equal(written.alive, read.alive)
                np.testing.assert_array_equal(written.views.starts, read.views.starts)
                for own, other in zip(written.segments, read.segments, strict=True):
                    assert own.committed.size_bytes == other.committed.size_bytes
                    np.testing.assert_array_equal(own.committed.checksums, other.committed.checksums)
