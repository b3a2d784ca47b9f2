"""The example that fills and builds the shards of an index as Ray tasks."""

import subprocess
import sys

import pytest

import mvindex
from tests.helpers.cli import ROOT, read_passages, write_tsv

tiny_models = pytest.importorskip("tests.helpers.tiny_models")


@pytest.mark.long
@pytest.mark.needs("ray")
def test_shards_as_ray_tasks_make_one_index(tmp_path):
    tiny_models.make_model(tmp_path / "encoder")
    write_tsv(tmp_path / "corpus.tsv", read_passages(60))
    command = [sys.executable, str(ROOT / "examples" / "ray" / "shards.py"), "corpus.tsv", "--index", "ray.mvx"]
    options = ["--shards", "2", "--encoder", str(tmp_path / "encoder"), "--kind", "ivf-flat", "--question", "when?"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 6
    with (
        mvindex.open(tmp_path / "ray.mvx") as index,
        mvindex.create(tmp_path / "one.mvx", encoder=tmp_path / "encoder") as one,
    ):
        one.add(mvindex.Document(*row) for row in read_passages(60))
        assert index.info().kind == "ivf-flat" and len(index) == 60
        found, wanted = (each.search("when was the embargo?", exact=True).hits for each in (index, one))
        assert [(hit.id, hit.snippet) for hit in found] == [(hit.id, hit.snippet) for hit in wanted]
