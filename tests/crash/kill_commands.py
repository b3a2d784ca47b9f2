"""The command line's own processes, to be killed: `mvindex ingest`, `delete`, `build` and what looks after an index."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
from kill_checks import held_by
from kill_documents import State, doc_id
from kill_operations import INDEX, Acknowledge, Operation
from kill_table import COPY, OPERATIONS

import mvindex

UNIT_TESTS = Path(__file__).parent.parent / "unit"
COMMAND = [sys.executable, "-m", "mvindex"]
# A chunk of the command line's ingest; the corpus has three.
CHUNK, NUM_DOCUMENTS = 1024, 2500
_MAKE_MODEL = "import sys; from pathlib import Path; from tiny_models import make_model; make_model(Path(sys.argv[1]))"


def become_command(arguments: tuple[str, ...], folder: Path) -> NoReturn:
    """Never: this process is the command's from now on."""
    os.chdir(folder)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    os.execv(COMMAND[0], [*COMMAND, *arguments])


def _running(arguments: tuple[str, ...], like: Operation | None = None) -> Callable[[Path, Acknowledge], None]:
    def run(folder: Path, acknowledge: Acknowledge) -> None:
        if like is not None and like.is_made(folder):
            return
        done = subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)

    return run


def commanded(like: str, *arguments: str) -> Operation:
    """An operation of the table done by the command line in one step: from its first state to its last."""
    operation, given = OPERATIONS[like], (*arguments, "--index", INDEX)
    states = [operation.states[0], operation.states[-1]]
    return replace(operation, run=_running(given, operation), command=given, states=states, has_reader=False)


def ingested(folder: Path) -> Operation:
    """An ingest of a corpus file with a tiny checkpoint, both made in the folder; its states are a whole run's."""
    checkpoint, corpus = folder / "checkpoint", folder / "corpus.tsv"
    subprocess.run([sys.executable, "-c", _MAKE_MODEL, checkpoint], cwd=UNIT_TESTS, check=True)
    corpus.write_text(_corpus(), encoding="utf-8")
    given = ("ingest", str(corpus), "--encoder", str(checkpoint), "--index", INDEX)
    run = _running(given)
    run(folder, lambda state: None)
    with mvindex.open(folder / INDEX) as index:
        held = held_by(index)
    bounds = [*range(0, NUM_DOCUMENTS, CHUNK), NUM_DOCUMENTS]
    states = [State(end, {key: item for key, item in held.items() if item.ordinal < end}) for end in bounds]
    return Operation(start=None, run=run, states=[None, *states], command=given)


def _corpus() -> str:
    generator = np.random.default_rng(1)
    words = "the a cat dog sat ran on under mat rug it was he she red blue old new house river größe 日本 🙂".split()
    rows = ["id\ttext\ttitle"]
    for number in range(NUM_DOCUMENTS):
        text = ". ".join(" ".join(generator.choice(words, 5)) for _ in range(1 + number % 4))
        rows.append(f"{doc_id(number)}\t{text}.\t{' '.join(generator.choice(words, 2))}")
    return "\n".join(rows) + "\n"


def command_operations(folder: Path) -> dict[str, Operation]:
    """The commands, by name; what they need is made in the folder."""
    gone = [doc_id(number) for part in (range(0, 3), [7, 11, 23], range(18, 28)) for number in part]
    return {
        "mvindex ingest": ingested(folder),
        "mvindex delete": commanded("delete by id", "delete", *gone),
        "mvindex build": commanded("build hnsw over flat", "build", "--kind", "hnsw"),
        "mvindex compact": commanded("compact with flat, beside a reader", "compact"),
        "mvindex snapshot": commanded("snapshot", "snapshot", COPY),
    }
