"""The result of a power cut by each model, worked out by hand."""

import pytest

from tests.durability.power.disk import Disk, MetadataFirst, Scattered, Strict, digest, read_image, write_image
from tests.durability.power.strace import Call, Kind, LogError

LOST, ZEROS = MetadataFirst(is_grown=False), MetadataFirst(is_grown=True)


def create(path):
    return Call(Kind.CREATE, path)


def make_dir(path):
    return Call(Kind.MAKE_DIR, path)


def write(path, offset, data):
    return Call(Kind.WRITE, path, offset=offset, data=data)


def truncate(path, size_bytes):
    return Call(Kind.TRUNCATE, path, size_bytes=size_bytes)


def sync(path):
    return Call(Kind.SYNC, path)


def rename(path, target):
    return Call(Kind.RENAME, path, target)


def unlink(path):
    return Call(Kind.UNLINK, path)


def after(*calls, before=None):
    disk = Disk(before)
    for call in calls:
        disk.apply(call)
    return disk


def test_a_new_file_is_lost_until_its_folder_is_fsynced_and_empty_until_it_is_itself():
    made = [create("a"), write("a", 0, b"abc")]
    assert after(*made).image(Strict()) == {}
    assert after(*made, sync("a")).image(Strict()) == {}
    assert after(*made, sync(".")).image(Strict()) == {"a": b""}
    assert after(*made, sync("."), sync("a")).image(Strict()) == {"a": b"abc"}


def test_a_journal_of_metadata_keeps_the_name_and_loses_the_bytes():
    disk = after(create("a"), write("a", 0, b"abc"), sync("a"), write("a", 1, b"xyz"))
    assert disk.image(LOST) == {"a": b"abc"}
    assert disk.image(ZEROS) == {"a": b"abc\0"}


def test_a_truncation_is_metadata_and_what_was_written_over_it_is_not():
    disk = after(truncate("a", 2), write("a", 2, b"XY"), before={"a": b"abcdef"})
    assert disk.image(Strict()) == {"a": b"abcdef"}
    assert disk.image(LOST) == {"a": b"ab"}
    assert disk.image(ZEROS) == {"a": b"ab\0\0"}


def test_a_write_behind_the_end_leaves_zeros_between():
    assert after(write("a", 4, b"x"), sync("a"), before={"a": b"ab"}).image(Strict()) == {"a": b"ab\0\0x"}


def test_an_appending_write_goes_to_the_end_and_a_copy_takes_the_bytes_of_its_source():
    disk = after(
        write("a", -1, b"cd"),
        Call(Kind.COPY, "b", "a", offset=1, source_offset=1, size_bytes=2),
        sync("a"),
        sync("b"),
        before={"a": b"ab", "b": b"x"},
    )
    assert disk.image(Strict()) == {"a": b"abcd", "b": b"xbc"}


def test_a_rename_replaces_all_at_once_when_the_folder_is_fsynced():
    disk = after(rename("b", "a"), before={"a": b"old", "b": b"new"})
    assert disk.image(Strict()) == {"a": b"old", "b": b"new"}
    assert disk.image(LOST) == {"a": b"new"}
    disk.apply(sync("."))
    assert disk.image(Strict()) == {"a": b"new"}


def test_a_renamed_folder_brings_only_what_was_durable_in_it():
    made = [make_dir("b"), create("b/a"), write("b/a", 0, b"x"), sync("b/a")]
    assert after(*made, rename("b", "c"), sync(".")).image(Strict()) == {"c": None}
    assert after(*made, sync("b"), rename("b", "c"), sync(".")).image(Strict()) == {"c": None, "c/a": b"x"}


def test_a_removed_file_comes_back_until_its_folder_is_fsynced():
    disk = after(unlink("a"), before={"a": b"x"})
    assert disk.image(Strict()) == {"a": b"x"}
    disk.apply(sync("."))
    assert disk.image(Strict()) == {}


def test_a_name_made_again_is_another_file():
    disk = after(unlink("a"), create("a"), write("a", 0, b"new"), sync("a"), before={"a": b"old"})
    assert disk.image(Strict()) == {"a": b"old"}
    assert disk.image(LOST) == {"a": b"new"}


def test_creating_a_file_that_is_there_changes_nothing():
    assert after(create("a"), before={"a": b"x"}).image(LOST) == {"a": b"x"}


def test_shared_memory_of_sqlite_holds_nothing_of_use_after_a_cut():
    disk = after(create("c-shm"), truncate("c-shm", 5), sync("."))
    assert disk.image(Strict()) == {}
    assert disk.image(ZEROS) == {"c-shm": bytes(5)}


def test_scattered_changes_are_any_of_the_possible_ones_and_the_durable_ones_always():
    old, new = b"o" * 1024, b"n" * 1024
    calls = [write("a", 0, new), rename("b", "c"), create("d")]
    images = [after(*calls, before={"a": old, "b": b"kept"}).image(Scattered(str(seed))) for seed in range(300)]
    # Two pages of 512 bytes, one of 4,096: either half may be lost alone.
    assert {image["a"] for image in images} == {old, new, old[:512] + new[512:], new[:512] + old[512:]}
    assert {frozenset(image) for image in images} == {frozenset("a" + rest) for rest in ("b", "c", "bd", "cd")}
    assert {image.get("b", image.get("c")) for image in images} == {b"kept"}


def test_the_same_seed_scatters_the_same_changes():
    disk = after(*(write("a", 512 * page, b"n" * 512) for page in range(40)), before={"a": bytes(20480)})
    assert disk.image(Scattered("7")) == disk.image(Scattered("7"))
    assert len({disk.image(Scattered(str(seed)))["a"] for seed in range(40)}) > 10


def test_what_is_fsynced_is_never_scattered():
    calls = [create("a"), write("a", 0, b"n" * 9000), sync("a"), sync(".")]
    assert all(after(*calls).image(Scattered(str(seed))) == {"a": b"n" * 9000} for seed in range(20))


def test_a_rename_between_folders_is_refused():
    with pytest.raises(LogError):
        after(rename("a", "d/a"), before={"a": b"", "d": None})


def test_an_image_on_a_real_disk_is_the_same_again(tmp_path):
    image = {"a": b"x", "d": None, "d/b": b"", "d/e": None}
    write_image(image, tmp_path / "new")
    assert read_image(tmp_path / "new") == image
    assert digest(image) == digest(dict(reversed(image.items())))
    assert len({digest(other) for other in ({"a": b""}, {"a": None}, {"a": b"\0"}, {"b": b""}, {})}) == 5
