"""Commands of the program as operations: in processes of their own, which are killed, or inside a forked child."""

import importlib
import io
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import numpy as np

import mvindex
from mvindex.cli import main
from tests.durability.checks import stored_in
from tests.durability.documents import State, doc_id
from tests.durability.operations import CHUNK, COPY, DELETED_IDS, INDEX, OPERATIONS, Acknowledge, Change, Run
from tests.durability.processes import in_child

INGEST = "mvindex ingest"
# Name -> the operation of the table that it is like, and its arguments.
COMMANDS = {
    "mvindex delete": ("delete by id", ("delete", *DELETED_IDS)),
    "mvindex build": ("build hnsw over flat", ("build", "--kind", "hnsw")),
    "mvindex compact": ("compact with flat, beside a reader", ("compact",)),
    "mvindex snapshot": ("snapshot", ("snapshot", COPY)),
    "mvindex restore": ("restore", ("restore", INDEX, "--index", COPY)),
    "mvindex verify --salvage": ("salvage", ("verify", "--salvage", COPY)),
}
_PROGRAM = [sys.executable, "-m", "mvindex"]
# A chunk of the command line's ingest; the large corpus has three.
_LARGE_CHUNK, _NUM_LARGE, _NUM_SMALL = 1024, 2500, 20
# Rows without an id, and an id that occurs twice.
_BAD_ROWS = ["\tno id\t\n", f"{doc_id(3)}\ttwice\t\n", "\tnone here either\tt\n"]


class CommandFailed(Exception):
    """A command ended with another status than 0."""

    def __init__(self, status: int, stderr: str) -> None:
        super().__init__(f"status {status}: {stderr}")
        self.status, self.stderr = status, stderr


def run_here(arguments: tuple[str, ...], folder: Path) -> None:
    """Run a command inside this process, in the folder; raise CommandFailed when its status is not 0."""
    stderr = io.StringIO()
    os.chdir(folder)
    sys.argv = ["mvindex", *arguments]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(stderr):
            main()
    except SystemExit as end:
        if end.code:
            raise CommandFailed(int(end.code), stderr.getvalue()) from end
    except KeyboardInterrupt as err:
        # Python prints it, and ends by the signal.
        raise CommandFailed(-signal.SIGINT, stderr.getvalue() + traceback.format_exc()) from err


def run_process(arguments: tuple[str, ...], folder: Path) -> None:
    """Run a command in a process of its own, in the folder."""
    done = subprocess.run([*_PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)


def become_command(arguments: tuple[str, ...], folder: Path) -> NoReturn:
    """Replace this process by the command."""
    os.chdir(folder)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    os.execv(_PROGRAM[0], [*_PROGRAM, *arguments])


@lru_cache
def load_modules() -> None:
    """Load everything that commands import: without open files, Python itself could not."""
    for words in (("compact",), ("verify",), ("build", "--kind", "flat"), ("delete", "1")):
        try:
            run_here((*words, "--index", "nowhere.mvx"), Path.cwd())
        except CommandFailed as err:
            if "nowhere.mvx" not in err.stderr:
                raise


def command_operations(is_process: bool) -> dict[str, Change]:
    """Return the commands that change an index as operations of one step, from the first state to the last."""
    return {name: _operation(OPERATIONS[like], given, is_process) for name, (like, given) in COMMANDS.items()}


def _operation(like: Change, arguments: tuple[str, ...], is_process: bool) -> Change:
    if "--index" not in arguments:
        arguments = (*arguments, "--index", INDEX)

    def run(folder: Path, acknowledge: Acknowledge) -> None:
        if not like.has_copies(folder):
            (run_process if is_process else run_here)(arguments, folder)

    states = [like.states[0], like.states[-1]]
    return replace(like, run=run, command=arguments if is_process else None, states=states, has_reader=False)


def large_ingest(folder: Path) -> Change:
    """Return an ingest of a corpus file in a process of its own, with a tiny checkpoint. Needs torch."""
    corpus = folder / "corpus.tsv"
    corpus.write_text(_large_corpus(), encoding="utf-8")
    arguments = ("ingest", str(corpus), "--encoder", str(_checkpoint(folder)), "--index", INDEX)
    run = _running(run_process, arguments)
    states = _states_of(run, folder, [*range(0, _NUM_LARGE, _LARGE_CHUNK), _NUM_LARGE])
    return Change(start=None, run=run, states=states, command=arguments)


def small_ingest(folder: Path) -> Change:
    """Return an ingest inside this process of a corpus with bad rows, which go to a rejects file. Needs torch."""
    corpus = folder / "corpus.tsv"
    corpus.write_text(_small_corpus(), encoding="utf-8")
    checkpoint = str(_checkpoint(folder))
    ingest = _running(
        run_here, ("ingest", str(corpus), "--encoder", checkpoint, "--index", INDEX, "--on-error", "skip")
    )

    def run(folder: Path, acknowledge: Acknowledge) -> None:
        """Run the ingest and check that it wrote all rejects; those of an earlier run are removed first."""
        with suppress(OSError):  # with no descriptor left a folder cannot be listed either
            for old in folder.glob("*.rejects*"):
                old.unlink()
        ingest(folder, acknowledge)
        (rejects,) = folder.glob("*.rejects.tsv")
        rows = rejects.read_text(encoding="utf-8").splitlines(keepends=True)[1:]
        if sorted(rows) != sorted(_BAD_ROWS):
            raise ValueError(f"{rejects}: expected {_BAD_ROWS}, got {rows}")

    # A chunk is so many rows with ids; the id that occurs twice is in the second chunk and left out of it.
    return Change(start=None, run=run, states=_states_of(run, folder, [0, CHUNK, 2 * CHUNK - 1, _NUM_SMALL]))


def _running(how: Callable[[tuple[str, ...], Path], None], arguments: tuple[str, ...]) -> Run:
    return lambda folder, acknowledge: how(arguments, folder)


def _states_of(run: Run, folder: Path, bounds: list[int]) -> list[State | None]:
    """Return the states of an ingest whose chunks end at these ordinals, as a run without interruption shows them."""
    whole = folder / "whole"
    whole.mkdir()
    run(whole, lambda state: None)
    with mvindex.open(whole / INDEX) as index:
        stored = stored_in(index)
    return [None, *(State(end, {key: each for key, each in stored.items() if each.ordinal < end}) for end in bounds)]


def _checkpoint(folder: Path) -> Path:
    """Make a tiny checkpoint in the folder."""
    models = _tiny_models()
    in_child(lambda: models.make_model(folder / "checkpoint") and None)
    return folder / "checkpoint"


def _tiny_models() -> ModuleType:
    """Import the module with everything that a model needs, so that forked processes need not load it."""
    models = importlib.import_module("tests.helpers.tiny_models")
    for name in ("AutoConfig", "AutoModel", "AutoTokenizer", "BertModel", "PreTrainedTokenizerFast"):
        getattr(models.transformers, name)
    return models


def _large_corpus() -> str:
    generator = np.random.default_rng(1)
    words = "the a cat dog sat ran on under mat rug it was he she red blue old new house river größe 日本 🙂".split()
    rows = ["id\ttext\ttitle"]
    for number in range(_NUM_LARGE):
        text = ". ".join(" ".join(generator.choice(words, 5)) for _ in range(1 + number % 4))
        rows.append(f"{doc_id(number)}\t{text}.\t{' '.join(generator.choice(words, 2))}")
    return "\n".join(rows) + "\n"


def _small_corpus() -> str:
    rows = [f"{doc_id(number)}\tthe cat sat on the {number} mat. it ran\tthe dog\n" for number in range(_NUM_SMALL)]
    return "id\ttext\ttitle\n" + "".join([*rows[:5], _BAD_ROWS[0], *rows[5:12], *_BAD_ROWS[1:], *rows[12:]])
