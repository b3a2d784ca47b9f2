"""The file of copies: mapped by every process, never trusted, made again by a build, and gone without harm."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import mvindex
from mvindex import kernels
from mvindex.engines import copy_cache
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.engines.scan_vnni import VnniConfig, VnniScan
from mvindex.errors import DamagedIndex, StoreError
from mvindex.index import embedded_store_of, search_engine_of
from mvindex.kernels.copies import Memory
from mvindex.store import copies_file
from mvindex.store import views as stored_views
from mvindex.store.copies_file import CopiesFile, copies_path
from mvindex.testing import assert_same, brute_force, unit

pytestmark = [pytest.mark.needs("vnni"), pytest.mark.usefixtures("small_blocks")]

DIM, VIEWS, DOCUMENTS = 32, 3, 600
QUERIES = unit(np.random.default_rng(2).standard_normal((3, DIM)))
# Blocks as in small_blocks; compiled loops at once.
_PREAMBLE = """
import json, os, sys
import mvindex
from mvindex import kernels
from mvindex.store import views
views._BLOCK_ELEMENTS = 1
"""
_READER = """
import numpy as np
kernels.expect_work()
with mvindex.open(sys.argv[1]) as index:
    results = index.search(np.load(sys.argv[2]), 5, exact=True)
    info = index.info()
found = [[(hit.id, hit.score) for hit in result.hits] for result in results]
print(json.dumps([found, all(result.exact for result in results), info.copy_bytes, info.mapped_bytes]))
"""
# Ends where a step on the file of copies has begun (before) or ended (after).
_KILLED_BUILDER = """
kernels.WORTH_LOADING = 0
def stop(event, found):
    if event == "mvindex.durable" and found[:2] == (sys.argv[2], sys.argv[3]) and "copies-" in found[2]:
        os.kill(os.getpid(), 9)
sys.addaudithook(stop)
with mvindex.open(sys.argv[1]) as index:
    index.admin.build("exact")
"""


@pytest.fixture
def small_blocks(monkeypatch):
    """Make many blocks of few views, and the file of copies for an index of any size."""
    monkeypatch.setattr(stored_views, "_BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(kernels, "WORTH_LOADING", 0)


def documents(first, count, seed=1):
    """Return documents and their views."""
    rows = unit(np.random.default_rng([seed, first]).standard_normal((count, VIEWS, DIM)))
    return [mvindex.Document(str(first + n), "t") for n in range(count)], rows


def make(path, seed=1):
    """Make an index with a file of copies."""
    with mvindex.create(path, dim=DIM) as index:
        index.add_views(*documents(0, DOCUMENTS, seed))
        index.admin.build("exact")
    return path


@pytest.fixture
def path(tmp_path):
    return make(tmp_path / "x.mvx")


def file_of(path):
    return copies_path(path / "generation-000001", 1)


def opened(path, memory=None):
    """Open the index with the scan that maps the file."""
    index = mvindex.open(path)
    more = [] if memory is None else [VnniConfig(threads=1), memory]
    search_engine_of(index).use_scan(lambda: VnniScan(NumpyScan, *more))
    return index


def sizes(index):
    info = index.info()
    return info.copy_bytes, info.mapped_bytes


def check(index, views):
    """Check certified results against brute force; views: by id."""
    for query, result in zip(QUERIES, index.search(QUERIES, 5, exact=True), strict=True):
        assert result.exact
        assert_same(result, brute_force(views, query, 5))


def by_id(*added):
    return {document.id: views for some in added for document, views in zip(*some, strict=True)}


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", _PREAMBLE + code, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_a_file_that_is_cut_while_it_is_mapped_is_damage(path):
    """Reading what is gone would end the process."""
    with opened(path) as index:
        assert index.search(QUERIES[0], 5).exact and sizes(index)[1]
        os.truncate(file_of(path), 4096)
        with pytest.raises(DamagedIndex, match="copies-000001.bin: expected .* committed bytes, got 4096"):
            index.search(QUERIES[0], 5)


def test_a_second_process_maps_the_copies_and_makes_none(path, tmp_path):
    np.save(tmp_path / "queries.npy", QUERIES)
    with opened(path) as index:
        expected = [[[hit.id, hit.score] for hit in result.hits] for result in index.search(QUERIES, 5)]
        size_bytes = index.info().copies_file_bytes
        assert size_bytes == file_of(path).stat().st_size
    found, is_exact, copied, mapped = json.loads(run(_READER, path, tmp_path / "queries.npy").stdout)
    assert (found, is_exact, copied) == (expected, True, 0)
    assert DOCUMENTS * VIEWS * DIM < mapped < size_bytes
    file_of(path).unlink()  # as an index that was made before there were such files
    assert json.loads(run(_READER, path, tmp_path / "queries.npy").stdout) == [expected, True, mapped, 0]


def test_what_the_file_does_not_cover_is_copied_in_memory(path):
    first, more = documents(0, DOCUMENTS), documents(DOCUMENTS, 300)
    with opened(path) as index:
        check(index, by_id(first))
        copied, mapped = sizes(index)
        assert copied == 0
        index.add_views(*more)
        check(index, by_id(first, more))
        copied, still_mapped = sizes(index)
        assert 0.5 * mapped < still_mapped < mapped  # the last block has grown
        assert copied > 300 * VIEWS * DIM
        index.delete(ids=["0"])
        index.admin.build("exact")
        views = by_id(first, more)
        del views["0"]
        check(index, views)
        assert sizes(index)[0] == 0
        assert sizes(index)[1] > copied + still_mapped - 10_000


def test_a_reader_moves_on_to_a_newer_file(path):
    with opened(path) as writer, opened(path) as reader:
        reader.search(QUERIES, 5)
        # Private: which bytes a scan reads, and of which file, no answer shows.
        cache = search_engine_of(reader)._engines[embedded_store_of(reader)].scan._copies
        older = cache._latest.file
        more = documents(DOCUMENTS, 300)
        writer.add_views(*more)
        reader.refresh()
        reader.search(QUERIES, 5)
        assert cache._latest.file is older
        writer.admin.build("exact")
        reader.refresh()
        check(reader, by_id(documents(0, DOCUMENTS), more))
        assert sizes(reader)[0] == 0
        inside = cache._latest.file.bytes.ctypes.data
        end = inside + cache._latest.file.size_bytes
        assert all(inside <= buffer.ctypes.data < end for buffer in cache._latest.buffers)


def flip(file, at):
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def change_version(file):
    """Write a sound file of another layout."""
    found = CopiesFile(file)
    contents = [found.content(place).copy() for place in range(len(found.blocks))]
    copies_file.write_copies(file, found.layout._replace(version=99), found.blocks, contents)


def take_from_another(file):
    """Put the file of an index with as many other documents in its place."""
    shutil.copyfile(file_of(make(file.parents[1].with_name("other.mvx"), seed=7)), file)


def link(file):
    elsewhere = file.parents[1].with_name("elsewhere.bin")
    file.rename(elsewhere)
    file.symlink_to(elsewhere)


# How the file is harmed, which part of its blocks is used still, and what verify says of it.
HARMS = [
    pytest.param(lambda file: flip(file, -1), (0.5, 1), "do not match their checksum", id="last block"),
    pytest.param(lambda file: flip(file, file.stat().st_size // 2), (0.5, 1), "do not match", id="middle block"),
    pytest.param(lambda file: flip(file, 3), (0, 0), "does not begin", id="magic"),
    pytest.param(lambda file: flip(file, 20), (0, 0), "table does not match", id="checksum"),
    pytest.param(lambda file: flip(file, 40), (0, 0), "table does not match", id="version"),
    pytest.param(lambda file: flip(file, 100), (0, 0), "table does not match", id="table"),
    pytest.param(lambda file: os.truncate(file, file.stat().st_size - 64), (0, 0), "expected", id="cut"),
    pytest.param(lambda file: os.truncate(file, 10), (0, 0), "expected a header", id="cut in the header"),
    pytest.param(lambda file: os.truncate(file, 0), (0, 0), "expected a header", id="empty"),
    pytest.param(lambda file: file.write_bytes(file.read_bytes() + b"1"), (0, 0), "expected", id="longer"),
    pytest.param(take_from_another, (0, 0), "copies of other views", id="of other views"),
    pytest.param(link, (0, 0), "symbolic link", id="link"),
    pytest.param(change_version, (0, 0), None, id="another layout"),
]


@pytest.mark.parametrize(("harm", "still_used", "named"), HARMS)
def test_a_damaged_file_is_named_and_not_used(path, harm, still_used, named):
    views, file = by_id(documents(0, DOCUMENTS)), file_of(path)
    with opened(path) as index:
        check(index, views)
        whole = sizes(index)[1]
    harm(file)
    with opened(path) as index:
        check(index, views)
        copied, mapped = sizes(index)
        assert copied + mapped == whole
        assert still_used[0] * whole <= mapped <= still_used[1] * whole
        assert (copied > 0) == (mapped < whole)
    problems = mvindex.verify(path).problems
    assert {problem.file for problem in problems} == (set() if named is None else {str(file)})
    assert all(problem.is_derived for problem in problems)
    assert named is None or any(named in problem.what for problem in problems)
    if named is not None:
        with opened(path) as index, pytest.raises((DamagedIndex, StoreError), match=r"copies-000001\.bin"):
            index.admin.snapshot(path.with_name("copy.mvx"))
    with opened(path) as index:
        index.admin.build("exact")
        check(index, views)
        assert sizes(index) == (0, whole)
    assert mvindex.verify(path).is_sound


@pytest.mark.parametrize("other", [mvindex.repair, lambda path: build(path, "flat")])
def test_a_damaged_file_is_removed_where_it_is_not_made_again(path, other):
    other(path)
    assert file_of(path).exists()
    flip(file_of(path), -1)
    other(path)
    assert not file_of(path).exists()
    assert mvindex.verify(path).is_sound


def build(path, kind):
    with mvindex.open(path) as index:
        index.admin.build(kind)


@pytest.mark.parametrize(("moment", "step"), [("after", "write"), ("before", "rename"), ("after", "rename")])
def test_a_build_that_is_killed_does_no_harm(path, moment, step):
    views, more = by_id(documents(0, DOCUMENTS)), documents(DOCUMENTS, 100)
    with opened(path) as index:
        index.add_views(*more)
    killed = run(_KILLED_BUILDER, path, moment, step)
    assert killed.returncode == -9, killed.stderr
    views |= by_id(more)
    with opened(path) as index:
        check(index, views)
        assert sizes(index)[1] > 0
        assert mvindex.verify(path).is_sound
        index.admin.build("exact")
        check(index, views)
        assert sizes(index)[0] == 0
    assert [file.name for file in file_of(path).parent.glob("copies-*")] == ["copies-000001.bin"]


def test_a_file_that_cannot_be_written_leaves_the_one_that_is_there(path, monkeypatch):
    before = file_of(path).read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(copies_file, "rename", fail)
    with opened(path) as index, pytest.raises(StoreError, match="copies-000001.bin: cannot be written: No space"):
        index.admin.build("exact")
    assert file_of(path).read_bytes() == before
    assert not file_of(path).with_name("copies-000001.bin.new").exists()


def test_compaction_and_snapshot_take_the_file_along(path):
    views = by_id(documents(0, DOCUMENTS))
    with opened(path) as index:
        index.delete(ids=["5"])
        del views["5"]
        index.admin.compact()
        check(index, views)
        assert sizes(index)[0] == 0
        index.admin.snapshot(path.with_name("copy.mvx"))
    with opened(path.with_name("copy.mvx")) as copy:
        check(copy, views)
        assert sizes(copy)[0] == 0
        assert copy.admin.verify().is_sound


def test_short_memory_drops_what_is_copied_and_keeps_what_is_mapped(path):
    available, now = [900 << 10], iter(range(10**6))
    memory = Memory(lambda: 1000 << 10, lambda: available[0], lambda: next(now), lambda: 0)
    views = by_id(documents(0, DOCUMENTS), documents(DOCUMENTS, 300))
    with opened(path, memory) as index:
        index.add_views(*documents(DOCUMENTS, 300))
        check(index, views)
        copied, mapped = sizes(index)
        assert copied > 0
        assert mapped > 0
        available[0] = 50 << 10
        check(index, views)
        assert sizes(index) == (0, mapped)
        available[0] = 900 << 10
        check(index, views)
        assert sizes(index) == (copied, mapped)
        # Private: as above.
        cache = search_engine_of(index)._engines[embedded_store_of(index)].scan._copies
        cache.give_back()
        assert sizes(index) == (0, mapped)


@pytest.mark.parametrize("dim", [1, 33, 200])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_files_of_any_dimensions_and_types_hold_what_would_be_copied(tmp_path, dim, dtype):
    rng = np.random.default_rng(dim)
    counts = rng.integers(1, 9, 200)
    given = [unit(rng.standard_normal((count, dim))) for count in counts]
    with mvindex.create(tmp_path / "x.mvx", dim=dim, dtype=dtype) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(200)], given)
        index.admin.build("exact")
        snapshot = embedded_store_of(index).snapshot
        file = CopiesFile(copies_path(snapshot.directory, 1))
        assert file.layout == copy_cache.copies_layout(dim)
        for place, block in enumerate(file.blocks):
            made = np.full(block["size_bytes"], 7, dtype=np.uint8)
            copy_cache.make_block(snapshot.views, int(block["first"]), int(block["last"]), made, file.layout)
            assert np.array_equal(made, file.content(place))
            assert file.content(place).ctypes.data % 64 == 0


def test_without_the_instructions_nothing_is_written_and_results_are_the_same(path, monkeypatch):
    views = by_id(documents(0, DOCUMENTS))
    monkeypatch.setattr(kernels, "has_int8_products", lambda: False)
    with mvindex.open(path) as index:
        search_engine_of(index).use_scan(NumpyScan)
        check(index, views)
        before = file_of(path).stat().st_mtime_ns
        assert index.admin.build("exact").engine_bytes == file_of(path).stat().st_size
        assert file_of(path).stat().st_mtime_ns == before
        file_of(path).unlink()
        assert index.admin.build("exact").engine_bytes == 0
        assert not file_of(path).exists()
