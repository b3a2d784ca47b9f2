"""The jobs of examples/slurm on a real Slurm: an index in shards, also after a task was killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mvindex
from tests.helpers.cli import mvindex as command_line
from tests.helpers.cli import ok
from tests.helpers.slurm_cluster import slurm_cluster, unfinished

ROOT = Path(__file__).parents[2]
LIMIT_S = 900


@pytest.mark.long
@pytest.mark.needs("slurm")
@pytest.mark.needs("minilm")
def test_an_array_makes_one_index_and_a_task_that_was_killed_goes_on(tmp_path):
    lines = (ROOT / "examples" / "squad" / "passages.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    corpus = tmp_path / "corpus.tsv"
    corpus.write_text("".join(lines[:121]), encoding="utf-8")
    (tmp_path / "slurm").mkdir()
    with slurm_cluster(tmp_path / "slurm") as environment:
        environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        environment |= {"OMP_NUM_THREADS": "1"}

        def slurm(*command):
            return subprocess.run(
                command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
            ).stdout

        def submit():
            slurm(str(ROOT / "examples" / "slurm" / "submit.sh"), "corpus.tsv", "corpus.mvx", "3", "ivf-flat")

        submit()
        until = time.monotonic() + LIMIT_S
        while not list(tmp_path.glob("corpus.mvx/shard-00001-of-00003")):
            assert time.monotonic() < until and unfinished(environment)
            time.sleep(0.2)
        slurm("scancel", "--signal=KILL", "--full", "1_1")
        while "RUNNING" in unfinished(environment):
            assert time.monotonic() < until
            time.sleep(0.5)
        # What waits for a task that failed waits for ever.
        assert set(unfinished(environment)) == {"PENDING"}
        slurm("scancel", "--state=PENDING")
        submit()
        while unfinished(environment):
            assert time.monotonic() < until
            time.sleep(0.5)
        logs = {path.name: path.read_text() for path in tmp_path.glob("slurm-*.out")}
    ok(command_line("ingest", "corpus.tsv", "--index", "one.mvx", cwd=tmp_path))
    with mvindex.open(tmp_path / "corpus.mvx") as index, mvindex.open(tmp_path / "one.mvx") as one:
        assert (index.info().shards, index.info().kind) == (3, "ivf-flat"), logs
        assert sorted(document.id for document in index) == sorted(document.id for document in one)
        question = "when did the black death begin"
        found, expected = (each.search(question, mode="lexical").hits for each in (index, one))
        assert found == expected
        # A view's last digits depend on the batch in which it was encoded.
        found, expected = (each.search(question, mode="dense", exact=True).hits for each in (index, one))
        assert np.allclose([hit.score for hit in found], [hit.score for hit in expected], atol=2e-3)
    assert mvindex.verify(tmp_path / "corpus.mvx").is_sound
