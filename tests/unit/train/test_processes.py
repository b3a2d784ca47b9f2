"""Several processes share a step."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from mvindex_train.processes import Processes  # noqa: E402
from tests.helpers.tiny_training import PATH, question_of  # noqa: E402

TWO_PROCESSES = """
import json, sys, torch
from tests.helpers.tiny_training import TinyBatches, TinyEncoder
from dataclasses import replace
from mvindex_train.config import LossConfig, OptimiserConfig
from mvindex_train.processes import Processes
from mvindex_train.step import StepContext, Stepper, read_figures

processes = Processes("cpu")
found = []
for own, others, chunk in (([0, 1, 2, 3, 4], [8, 11], None), ([0, 1, 2, 3, 4], [8, 11], 2), ([2], [3], None)):
    encoder = TinyEncoder(dropout=0.0).train()
    config = OptimiserConfig(learning_rate=1e-2, chunk_documents=chunk, precision="fp32")
    loss = LossConfig(scale=10.0, local_weight=0.1, answer_view=True)
    stepper = Stepper(encoder, config, processes)
    at = StepContext(number=0, epoch=0, rate=1.0)
    (figures,) = read_figures([stepper.step(TinyBatches().batch(own, others), loss, at)])
    found.append([figures["loss"], figures["gradient_norm"], encoder.words.detach().tolist()])
assert processes.any(processes.rank == processes.count - 1) and not processes.any(False)
joined = processes.join(torch.arange(2 * processes.rank + 1)).tolist()
with open(f"{sys.argv[1]}/{processes.rank}.json", "w") as file:
    json.dump([processes.count, joined, found], file)
if processes.count > 1:
    torch.distributed.destroy_process_group()
"""


@pytest.mark.full
def test_two_processes_take_the_step_of_one(tmp_path, monkeypatch):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(PATH), "OMP_NUM_THREADS": "1"}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    # What torchrun, and so `accelerate launch`, sets for several processes of one machine.
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    command = [sys.executable, "-c", TWO_PROCESSES, str(two)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ranks = [{"RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
    started = [subprocess.Popen(command, env=environment | shared | own, **options) for own in ranks]
    monkeypatch.setattr(sys, "argv", ["one", str(one)])
    exec(TWO_PROCESSES, {})
    for process in started:
        _, stderr = process.communicate(timeout=600)
        assert process.returncode == 0, stderr
    found = [[json.loads(path.read_text()) for path in sorted(folder.iterdir())] for folder in (one, two)]
    [(_, _, alone)], ((count, joined, first), (_, _, second)) = found
    assert (count, joined) == (2, [0, 0, 1, 2])
    assert first == second
    for mine, theirs in zip(alone, first, strict=True):
        assert mine[:2] == pytest.approx(theirs[:2], abs=1e-5)
        np.testing.assert_allclose(mine[2], theirs[2], atol=1e-5)
    assert question_of(0) == "which paint0x0 do they have at the house"


def test_the_first_process_takes_a_batch_that_is_too_small_to_share():
    processes = Processes("cpu")
    shares = {}
    for count, items in ((3, 2), (3, 7), (2, 2)):
        for rank in range(count):
            processes.rank, processes.count = rank, count
            shares[count, items, rank] = range(items)[processes.share(items)]
    assert [list(shares[3, 2, rank]) for rank in range(3)] == [[0, 1], [], []]
    assert [list(shares[3, 7, rank]) for rank in range(3)] == [[0, 1], [2, 3], [4, 5, 6]]
    assert [list(shares[2, 2, rank]) for rank in range(2)] == [[0], [1]]
