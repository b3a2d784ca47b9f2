"""Append-only files: what is committed stays, what is not is cut, damage is named."""

import os

import numpy as np
import pytest
import xxhash

from mvindex.errors import DamagedIndex, StoreError
from mvindex.store.views import BLOCK_BYTES, CommittedSegment, MappedSegment, append, check_mapped

EMPTY = CommittedSegment("data.bin", 0, np.empty(0, dtype=np.uint64))


def some_bytes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def plain_checksums(data):
    return [xxhash.xxh3_64_intdigest(data[at : at + BLOCK_BYTES].tobytes()) for at in range(0, len(data), BLOCK_BYTES)]


@pytest.mark.parametrize("sizes", [[10], [0, 5], [BLOCK_BYTES], [BLOCK_BYTES - 1, 2, 3 * BLOCK_BYTES + 7, 1]])
def test_appending_in_parts_gives_the_bytes_and_checksums_of_the_whole(tmp_path, sizes):
    parts = [some_bytes(size, seed) for seed, size in enumerate(sizes)]
    committed = EMPTY
    for part in parts:
        committed = append(tmp_path, committed, part)
    whole = np.concatenate(parts)
    assert committed.size_bytes == len(whole)
    assert committed.checksums.tolist() == plain_checksums(whole)
    mapped = MappedSegment(tmp_path, committed)
    mapped.check(0, len(whole))
    np.testing.assert_array_equal(mapped.bytes, whole)


def test_the_leftovers_of_a_dead_writer_are_ignored_and_then_cut(tmp_path):
    committed = append(tmp_path, EMPTY, some_bytes(100))
    with open(tmp_path / "data.bin", "ab") as file:
        file.write(b"torn" * 1000)
    np.testing.assert_array_equal(MappedSegment(tmp_path, committed).bytes, some_bytes(100))
    after = append(tmp_path, committed, some_bytes(50, 1))
    np.testing.assert_array_equal(
        MappedSegment(tmp_path, after).bytes, np.concatenate([some_bytes(100), some_bytes(50, 1)])
    )


def test_a_flipped_bit_is_named_at_first_touch_and_only_there(tmp_path):
    committed = append(tmp_path, EMPTY, some_bytes(3 * BLOCK_BYTES))
    with open(tmp_path / "data.bin", "r+b") as file:
        file.seek(BLOCK_BYTES + 5)
        byte = file.read(1)[0]
        file.seek(BLOCK_BYTES + 5)
        file.write(bytes([byte ^ 1]))
    mapped = MappedSegment(tmp_path, committed)
    mapped.check(0, BLOCK_BYTES)
    mapped.check(2 * BLOCK_BYTES, 3 * BLOCK_BYTES)
    with pytest.raises(DamagedIndex, match=f"data.bin: the MiB from byte {BLOCK_BYTES}"):
        mapped.check(BLOCK_BYTES - 1, BLOCK_BYTES + 1)


def test_a_file_that_is_too_short_or_gone_is_an_error(tmp_path):
    committed = append(tmp_path, EMPTY, some_bytes(100))
    with open(tmp_path / "data.bin", "r+b") as file:
        file.truncate(99)
    with pytest.raises(DamagedIndex, match="expected 100 committed bytes, got 99 on disk"):
        MappedSegment(tmp_path, committed)
    with pytest.raises(DamagedIndex):
        append(tmp_path, committed, some_bytes(1))
    (tmp_path / "data.bin").unlink()
    with pytest.raises(DamagedIndex, match="got no file"):
        MappedSegment(tmp_path, committed)


def test_a_file_that_is_moved_and_then_cut_is_found_by_its_mapping(tmp_path):
    mapped = MappedSegment(tmp_path, append(tmp_path, EMPTY, some_bytes(100)))
    moved = (tmp_path / EMPTY.name).rename(tmp_path / "moved")
    check_mapped([mapped.file])
    os.truncate(moved, 99)
    with pytest.raises(DamagedIndex, match="expected 100 committed bytes, got 99"):
        check_mapped([mapped.file])


def test_a_disk_that_takes_no_more_is_a_store_error(tmp_path):
    with pytest.raises(StoreError, match="cannot append"):
        append(tmp_path / "not there", EMPTY, some_bytes(1))


def test_a_longer_snapshot_checks_the_block_that_grew_again(tmp_path):
    first = append(tmp_path, EMPTY, some_bytes(10))
    old = MappedSegment(tmp_path, first)
    old.check(0, 10)
    second = append(tmp_path, first, some_bytes(10, 1))
    with open(tmp_path / "data.bin", "r+b") as file:
        file.seek(15)
        file.write(b"\0\0\0")
    with pytest.raises(DamagedIndex):
        MappedSegment(tmp_path, second, old).check(0, 20)


def test_a_damaged_last_block_is_not_given_a_new_checksum(tmp_path):
    committed = append(tmp_path, EMPTY, some_bytes(100))
    with open(tmp_path / "data.bin", "r+b") as file:
        file.write(b"\0\1\2\3")
    with pytest.raises(DamagedIndex, match="from byte 0 on"):
        append(tmp_path, committed, some_bytes(5, 1))
