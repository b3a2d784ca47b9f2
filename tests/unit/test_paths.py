"""A `~` is the home directory at every door that takes a path."""

import json

import numpy as np
import pytest

import mvindex
from mvindex.cache import cache_folder
from mvindex.errors import ConfigError
from mvindex.paths import expand_home, user_path
from tests.helpers.cli import mvindex as run
from tests.helpers.cli import ok


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(tmp_path / "elsewhere")
    yield folder
    assert list((tmp_path / "elsewhere").iterdir()) == []


def vectors(texts):
    return np.ones((len(texts), 4), dtype=np.float32)


def test_a_tilde_is_the_home_directory_only_at_the_beginning(home):
    assert expand_home("~/x.mvx") == f"{home}/x.mvx" and user_path("~") == home
    for other in ("a~/b", "milvus-lite:~/x.db", "-", "./~"):
        assert expand_home(other) == other


@pytest.mark.parametrize("wrong", ["a\0b", "\ud800"])
def test_what_no_path_is_is_named(wrong):
    with pytest.raises(ConfigError, match="expected a path"):
        user_path(wrong)


def test_python_creates_opens_snapshots_restores_and_checks(home):
    with mvindex.create("~/x.mvx", encoder=vectors) as index:
        index.add(["a", "b"])
        index.admin.snapshot("~/copy")
    mvindex.restore("~/copy", "~/new.mvx")
    with mvindex.open("~/new.mvx") as index:
        assert len(index) == 2
    assert not mvindex.verify("~/new.mvx").problems
    assert sorted(path.name for path in home.iterdir()) == ["copy", "new.mvx", "x.mvx"]


def test_python_reads_files_and_folders(home):
    (home / "notes").mkdir()
    (home / "notes" / "a.md").write_text("a text")
    assert [one.id for one in mvindex.read_files("~/notes")] == ["notes/a.md"]
    assert [one.text for one in mvindex.read_files(["~/notes/*.md"])] == ["a text"]
    with mvindex.create("~/x.mvx", encoder=vectors) as index:
        assert mvindex.sync_folder(index, "~/notes").is_complete


def test_sharded_indexes_and_the_cache(home, monkeypatch):
    with mvindex.create("~/s.mvx", dim=4, shards=2):
        pass
    monkeypatch.setenv("MVINDEX_CACHE", "~/cache")
    assert cache_folder() == home / "cache" and (home / "s.mvx").is_dir()


def test_commands_take_it_behind_an_equals_sign_and_in_the_environment(home, tmp_path, monkeypatch):
    with mvindex.create(home / "x.mvx", dim=4) as index:
        index.add_views([mvindex.Document("1", "a text")], np.ones((1, 1, 4), dtype=np.float32))
    elsewhere = tmp_path / "elsewhere"
    assert json.loads(ok(run("info", "--index=~/x.mvx", "--json", cwd=elsewhere)).stdout)["documents"] == 1
    with monkeypatch.context() as patch:
        patch.setenv("MVINDEX_INDEX", "~/x.mvx")
        ok(run("get", "1", cwd=elsewhere))
    ok(run("snapshot", "~/copy", "--index=~/x.mvx", cwd=elsewhere))
    ok(run("restore", "~/copy", "--index=~/again.mvx", cwd=elsewhere))
    ok(run("verify", "--index=~/again.mvx", cwd=elsewhere))
    ok(run("export", "~/out", "--index=~/x.mvx", "--to", "jsonl", cwd=elsewhere))
    assert sorted(path.name for path in home.iterdir()) == ["again.mvx", "copy", "out", "x.mvx"]
