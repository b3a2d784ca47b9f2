"""Hashes that are remembered, and forgotten as soon as the file may be another."""

import hashlib
import json
import os

import pytest

from mvindex.encoder.checkpoint import hashes


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own, in which every file is large and was changed long ago."""
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hashes, "_LARGE_BYTES", 1)
    monkeypatch.setattr(hashes, "_SETTLED_NS", -(10**18))
    return tmp_path / "cache" / "sha256.json"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    return path


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def spoil(cache):
    """Make what is remembered wrong, to see whether it is used."""
    cache.write_text(cache.read_text().replace(sha256(b"weights"), "remembered"))


def test_an_unchanged_file_is_read_once(file, cache):
    assert hashes.sha256_of(file) == sha256(b"weights")
    spoil(cache)
    assert hashes.sha256_of(file) == "remembered"


def rewrite(file):
    file.write_bytes(b"Weights")


def replace(file):
    other = file.with_name("other")
    other.write_bytes(b"Weights")
    times = file.stat()
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(file)


def rewrite_and_set_back(file):
    times = file.stat()
    file.write_bytes(b"Weights")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("change", [rewrite, replace, rewrite_and_set_back])
def test_a_changed_file_is_read_again(file, cache, change):
    hashes.sha256_of(file)
    change(file)
    assert hashes.sha256_of(file) == sha256(b"Weights")


def test_a_file_that_was_changed_just_now_is_not_remembered(file, cache, monkeypatch):
    monkeypatch.setattr(hashes, "_SETTLED_NS", 2 * 10**9)
    hashes.sha256_of(file)
    assert not cache.exists()


def test_a_small_file_is_always_read(file, cache, monkeypatch):
    hashes.sha256_of(file)
    spoil(cache)
    monkeypatch.setattr(hashes, "_LARGE_BYTES", 8)
    assert hashes.sha256_of(file) == sha256(b"weights")


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"1-2": 3})])
def test_a_damaged_memory_is_no_memory(file, cache, content):
    cache.parent.mkdir()
    cache.write_text(content)
    assert hashes.sha256_of(file) == sha256(b"weights")


def test_a_cache_that_cannot_be_written_changes_nothing(file, tmp_path, monkeypatch):
    monkeypatch.setenv("MVINDEX_CACHE", str(file))
    assert hashes.sha256_of(file) == sha256(b"weights")


def test_only_the_latest_files_are_remembered(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(hashes, "_MOST_FILES", 2)
    for name in "abc":
        (tmp_path / name).write_text(name)
        hashes.sha256_of(tmp_path / name)
    known = json.loads(cache.read_text())
    assert [entry[-1] for entry in known.values()] == [sha256(b"b"), sha256(b"c")]
