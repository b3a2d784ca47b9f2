"""Ctrl-C and SIGTERM at durable steps of operations and commands: nothing is lost, and run again they end well.

The signals are real ones, which a process sends to itself at a step; each step with FULL=1, here some of them. Commands
in processes of their own get theirs from outside, in the middle of their writing.
"""

import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from faults_sweeps import check, swept
from faults_trials import names_in

import mvindex

COMMANDS = [
    "mvindex compact",
    "mvindex snapshot",
    "mvindex verify --salvage",
    "mvindex build",
    "mvindex delete",
]
OPERATIONS = ["ingest into a new index", "replace", "update metadata", "build hnsw over flat", "snapshot", "salvage"]
NUM_DOCUMENTS, DIM = 6000, 32


def test_an_interrupted_command_has_its_exit_status_and_no_traceback_and_loses_nothing(tmp_path):
    check(swept("interrupted", ["mvindex compact", "mvindex build"], tmp_path, "--every", "13"), 2, successes=2)


def test_an_interrupted_call_raises_and_loses_nothing(tmp_path):
    check(swept("interrupted", ["replace", "salvage"], tmp_path, "--every", "17"), 2, successes=2)


def test_a_terminated_process_loses_nothing_and_the_next_tidies_up(tmp_path):
    check(swept("terminated", ["mvindex compact"], tmp_path, "--every", "13"), 3, successes=2)


@pytest.mark.full
@pytest.mark.parametrize("trouble", ["interrupted", "terminated"])
@pytest.mark.parametrize("operation", [*COMMANDS, *OPERATIONS])
def test_a_signal_loses_nothing_of_any_operation(trouble, operation, tmp_path):
    """Here at some of the steps; bench/full_disk.py takes them all."""
    check(swept(trouble, [operation], tmp_path, "--every", "19"), at_least=1, successes=2)


@pytest.mark.full
@pytest.mark.parametrize("trouble", ["interrupted", pytest.param("terminated", marks=pytest.mark.long)])
def test_a_signal_costs_an_ingest_of_files_no_document_and_no_reject(trouble, tmp_path):
    """The first Ctrl-C lets it end its chunk; it then says how to go on."""
    pytest.importorskip("torch")
    check(swept(trouble, ["mvindex ingest"], tmp_path, "--every", "21"), at_least=1, successes=2)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """An index that takes a moment to compact, to copy or to build."""
    path = tmp_path_factory.mktemp("large") / "large.mvx"
    views = np.random.default_rng(0).standard_normal((NUM_DOCUMENTS, 1, DIM))
    with mvindex.create(path, dim=DIM) as index:
        index.add_views([mvindex.Document(str(number), "t") for number in range(NUM_DOCUMENTS)], views)
        index.delete(ids=["0"])
    return path


def sent_while_writing(number, arguments, path, copy):
    """Status, and what was said on stderr, of the command that got the signal once it had begun to write."""
    command = [sys.executable, "-m", "mvindex", *arguments, "--index", str(path)]
    # Who starts tests in the background may have them ignore it.
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        while process.poll() is None and not has_begun(process.pid, path, copy):
            time.sleep(0.001)
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    return process.returncode, said


def has_begun(pid, path, copy):
    """True when the process has the writer's lock, or a copy of the index is being written."""
    lock = path / "writer.lock"
    is_locked = lock.exists() and lock.read_text().startswith(f"process {pid} on")
    return is_locked or any(copy.parent.glob(f".{copy.name}*"))


CTRL_C, SIGTERM = (signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)
COMPACT, SNAPSHOT, BUILD = ["compact"], ["snapshot", "copy.mvx"], ["build", "--kind", "hnsw"]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (COMPACT, CTRL_C),
        (SNAPSHOT, SIGTERM),
        (BUILD, CTRL_C),
        pytest.param(COMPACT, SIGTERM, marks=pytest.mark.full),
        pytest.param(SNAPSHOT, CTRL_C, marks=pytest.mark.full),
        pytest.param(BUILD, SIGTERM, marks=pytest.mark.full),
    ],
)
def test_a_real_command_ends_where_it_is_and_can_be_run_again(arguments, sent, large, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, copy = tmp_path / "i.mvx", tmp_path / "copy.mvx"
    number, status = sent
    for _ in range(10):
        for left in (path, copy):
            shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(large, path)
        ended, said = sent_while_writing(number, arguments, path, copy)
        # On a busy machine the command may be done before it is seen to have begun.
        if ended != 0:
            break
    assert (ended, said) == (status, "")
    assert not copy.exists()
    if sent == CTRL_C:
        assert list(tmp_path.iterdir()) == [path] and names_in(path) == names_in(large)
    found = mvindex.verify(path)
    assert found.is_sound and found.documents == NUM_DOCUMENTS - 1
    command = [sys.executable, "-m", "mvindex", *arguments, "--index", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    with mvindex.open(copy if arguments == SNAPSHOT else path) as index:
        info = index.info()
    assert (info.documents, info.kind) == (NUM_DOCUMENTS - 1, "hnsw" if arguments == BUILD else "exact")
    assert info.num_deleted == (0 if arguments == COMPACT else 1)
    assert {entry.name for entry in tmp_path.iterdir()} <= {"i.mvx", "copy.mvx"}
    assert not any("unfinished" in name for name in names_in(tmp_path))
