"""An index in shards as a user makes it: by one command, by an array of jobs, and what the commands say of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mvindex as package
from mvindex.index import store_of
from tests.helpers.cli import ROOT, lines, mvindex, ok, read_passages, schema, write_tsv

tiny_models = pytest.importorskip("tests.helpers.tiny_models")
jsonschema = pytest.importorskip("jsonschema")

SLURM = ROOT / "examples" / "slurm"
QUESTION = "when was the embargo"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a corpus, an encoder, and the corpus as an index in three shards and in none."""
    folder = tmp_path_factory.mktemp("shards")
    tiny_models.make_model(folder / "encoder")
    write_tsv(folder / "corpus.tsv", read_passages(60))
    for index, how in (("sharded.mvx", ["--shards", 3]), ("one.mvx", [])):
        ok(ingest(folder, index, *how))
    return folder


def ingest(folder, index, *how):
    return mvindex("ingest", "corpus.tsv", "--index", index, "--encoder", "encoder", "--json", *how, cwd=folder)


def hits(folder, index, *how):
    (result,) = lines(mvindex("query", QUESTION, "--index", index, "--json", *how, cwd=folder))
    jsonschema.validate(result, schema("query_result"))
    for hit in result["hits"]:
        # Documents of other batches have views that differ in the last bit; a citation is scored by all of them.
        del hit["citation"]["why"]
    return result


def test_an_index_in_shards_answers_as_one_without(folder):
    assert hits(folder, "sharded.mvx") == hits(folder, "one.mvx")
    (info,) = lines(mvindex("info", "--index", "sharded.mvx", "--json", cwd=folder))
    assert (info["shards"], info["documents"]) == (3, 60)
    # Known as what it is without flags, and never as something else.
    (again,) = lines(ingest(folder, "sharded.mvx"))
    assert (again["added"], again["unchanged"]) == (0, 60)
    wrong = ingest(folder, "sharded.mvx", "--shards", 4)
    assert wrong.returncode == 1 and "was made with shards 3, not 4" in wrong.stderr
    wrong = ingest(folder, "one.mvx", "--shards", 3)
    assert wrong.returncode == 1 and "was made with shards None, not 3" in wrong.stderr


@pytest.mark.full
def test_shards_of_an_array_of_jobs_become_the_same_index(folder):
    for number in (2, 0, 1):
        (report,) = lines(ingest(folder, "array.mvx", "--shard", f"{number}/3"))
        assert report["added"] + report["elsewhere"] == 60
        early = mvindex("query", QUESTION, "--index", "array.mvx", cwd=folder)
        assert early.returncode == 1 and "mvindex assemble" in early.stderr
    (report,) = lines(mvindex("assemble", "array.mvx", "--json", cwd=folder))
    assert (report["shards"], report["documents"]) == (3, 60)
    assert hits(folder, "array.mvx") == hits(folder, "one.mvx")


@pytest.mark.parametrize("shard", ["3/3", "-1/3", "1", "a/b", "0/0", "1/2/3", "0/5000"])
def test_a_shard_that_there_cannot_be_is_refused(folder, shard):
    done = ingest(folder, "never.mvx", f"--shard={shard}")
    assert done.returncode == 1 and "mvindex: sha" in done.stderr
    assert not (folder / "never.mvx").exists()


@pytest.mark.full
def test_bad_rows_are_rejected_by_the_first_shard_alone(folder, tmp_path):
    rows = [[f"d{n}", f"text {n}", ""] for n in range(20)]
    write_tsv(tmp_path / "corpus.tsv", [*rows[:5], ["", "no id", ""], *rows[5:], rows[3]])
    shutil.copytree(folder / "encoder", tmp_path / "encoder")
    rejected = 0
    for number in range(3):
        (report,) = lines(ingest(tmp_path, "x.mvx", "--shard", f"{number}/3", "--on-error", "skip"))
        rejected += report["rejected"]
    # The row without an id, and the second d3.
    assert rejected == 2
    assert lines(mvindex("assemble", "x.mvx", "--json", cwd=tmp_path))[0]["documents"] == 20


@pytest.mark.full
def test_a_shard_that_is_missing_is_named_or_left_out_and_told(folder, tmp_path):
    shutil.copytree(folder / "sharded.mvx", tmp_path / "sharded.mvx")
    shutil.copytree(folder / "encoder", tmp_path / "encoder")
    shutil.rmtree(tmp_path / "sharded.mvx" / "shard-00001-of-00003")
    done = mvindex("query", QUESTION, cwd=tmp_path)
    assert done.returncode == 1 and "shard 1 of 3" in done.stderr
    partial = hits(tmp_path, "sharded.mvx", "--allow-partial")
    assert partial["missing_shards"] == [1] and not partial["exact"] and len(partial["hits"]) == 10
    assert "WITHOUT shards 1" in ok(mvindex("query", QUESTION, "--allow-partial", cwd=tmp_path)).stdout
    ids = [hit["id"] for hit in hits(folder, "one.mvx", "--top-k", 60)["hits"]]
    there = {hit["id"] for hit in hits(tmp_path, "sharded.mvx", "--allow-partial", "--top-k", 60)["hits"]}
    gone = next(doc_id for doc_id in ids if doc_id not in there)
    done = mvindex("get", gone, "--allow-partial", cwd=tmp_path)
    assert done.returncode == 1 and "belongs to a shard that is missing" in done.stderr
    (tmp_path / "questions.tsv").write_text(f"q1\t{QUESTION}\n")
    (report,) = lines(mvindex("eval", "--questions", "questions.tsv", "--allow-partial", "--json", cwd=tmp_path))
    jsonschema.validate(report, schema("eval"))
    assert report["missing_shards"] == [1] and report["exact"] == 0


@pytest.mark.long
def test_the_slurm_scripts_make_the_index(folder):
    """As Slurm would run them: by bash, the task's number in the environment."""
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(script, *arguments, task=0):
        command = ["bash", str(SLURM / script), *map(str, arguments)]
        done = subprocess.run(
            command,
            cwd=folder,
            env=env | {"SLURM_ARRAY_TASK_ID": str(task)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr

    for task in range(2):
        run("ingest.sbatch", "corpus.tsv", "slurm.mvx", 2, "--encoder", "encoder", task=task)
    run("assemble.sbatch", "slurm.mvx", "ivf-flat")
    for task in range(2):
        run("build.sbatch", "slurm.mvx", "ivf-flat", task=task)
    (info,) = lines(mvindex("info", "--index", "slurm.mvx", "--json", cwd=folder))
    assert (info["kind"], info["shards"], info["documents"], info["fresh_documents"]) == ("ivf-flat", 2, 60, 0)
    with package.open(folder / "slurm.mvx") as index:
        records = [shard.snapshot.settings["engine"] for shard in store_of(index).sharding.stores.values()]
    assert len({record["settings"]["trained"] for record in records}) == 1
    assert hits(folder, "slurm.mvx", "--exact") == hits(folder, "one.mvx")
