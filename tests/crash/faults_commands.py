"""Commands of the program, run in the process that is there: a forked one, with all that they import loaded."""

import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from faults_trials import CommandFailed
from kill_checks import held_by
from kill_documents import State, doc_id
from kill_operations import CHUNK, INDEX, Acknowledge, Operation
from kill_processes import asked
from kill_table import COPY, OPERATIONS

import mvindex
from mvindex.cli import main

UNIT_TESTS = Path(__file__).parent.parent / "unit"
_NUM_DOCUMENTS = 20
# Rows that are none: their id is missing, or stands twice.
_BAD_ROWS = ["\tno id\t\n", f"{doc_id(3)}\ttwice\t\n", "\tnone here either\tt\n"]


def command(arguments: tuple[str, ...], folder: Path) -> None:
    """Nothing; the command was run in the folder. CommandFailed when its status is not 0."""
    said = io.StringIO()
    os.chdir(folder)
    sys.argv = ["mvindex", *arguments]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(said):
            main()
    except SystemExit as end:
        if end.code:
            raise CommandFailed(int(end.code), said.getvalue()) from end
    except KeyboardInterrupt as err:
        # Python shows it, and ends by the signal.
        raise CommandFailed(-signal.SIGINT, said.getvalue() + traceback.format_exc()) from err


@lru_cache
def load_modules() -> None:
    """Nothing; all that commands import is loaded: without open files, Python itself could not."""
    for words in (("compact",), ("verify",), ("build", "--kind", "flat"), ("delete", "1")):
        try:
            command((*words, "--index", "nowhere.mvx"), Path.cwd())
        except CommandFailed as err:
            if "nowhere.mvx" not in err.said:
                raise


def command_operations() -> dict[str, Operation]:
    """The commands that change an index, each in one step from its first state to its last; ingest needs more."""
    gone = [doc_id(number) for part in (range(0, 3), [7, 11, 23], range(18, 28)) for number in part]
    return {
        "mvindex delete": _commanded("delete by id", "delete", *gone),
        "mvindex build": _commanded("build hnsw over flat", "build", "--kind", "hnsw"),
        "mvindex compact": _commanded("compact with flat, beside a reader", "compact"),
        "mvindex snapshot": _commanded("snapshot", "snapshot", COPY),
        "mvindex verify --salvage": _commanded("salvage", "verify", "--salvage", COPY),
    }


def _commanded(like: str, *arguments: str) -> Operation:
    operation, given = OPERATIONS[like], (*arguments, "--index", INDEX)

    def run(folder: Path, acknowledge: Acknowledge) -> None:
        if not operation.is_made(folder):
            command(given, folder)

    return replace(operation, run=run, states=[operation.states[0], operation.states[-1]], has_reader=False)


def ingest_operation(folder: Path) -> Operation:
    """An ingest of a corpus with bad rows, which go to a rejects file; its states are those of a whole run.

    Its checkpoint and corpus are made in the folder. Needs torch.
    """
    checkpoint, corpus = folder / "checkpoint", folder / "corpus.tsv"
    models = _tiny_models()
    asked(lambda: models.make_model(checkpoint) and None)
    corpus.write_text(_corpus(), encoding="utf-8")
    run = _ingesting(("ingest", str(corpus), "--encoder", str(checkpoint), "--index", INDEX, "--on-error", "skip"))
    (folder / "whole").mkdir()
    run(folder / "whole", lambda state: None)
    with mvindex.open(folder / "whole" / INDEX) as index:
        held = held_by(index)
    # A chunk is so many rows with ids; the one that stands twice is in the second, and left out of it.
    bounds = [0, CHUNK, 2 * CHUNK - 1, _NUM_DOCUMENTS]
    states = [State(end, {key: item for key, item in held.items() if item.ordinal < end}) for end in bounds]
    return Operation(start=None, run=run, states=[None, *states])


def _tiny_models() -> ModuleType:
    """The module, with all that a model needs loaded: not each of the processes forked from this one has to."""
    sys.path.insert(0, str(UNIT_TESTS))
    models = importlib.import_module("tiny_models")
    for name in ("AutoConfig", "AutoModel", "AutoTokenizer", "BertModel", "PreTrainedTokenizerFast"):
        getattr(models.transformers, name)
    return models


def _ingesting(arguments: tuple[str, ...]) -> Callable[[Path, Acknowledge], None]:
    def run(folder: Path, acknowledge: Acknowledge) -> None:
        """A run that has ended well has written all rejects; those of an earlier one are not in its way."""
        with suppress(OSError):  # with no descriptor left a folder cannot be listed either
            for old in folder.glob("*.rejects*"):
                old.unlink()
        command(arguments, folder)
        (kept,) = folder.glob("*.rejects.tsv")
        rows = kept.read_text(encoding="utf-8").splitlines(keepends=True)[1:]
        if sorted(rows) != sorted(_BAD_ROWS):
            raise ValueError(f"the rejects are {rows}")

    return run


def _corpus() -> str:
    rows = [f"{doc_id(number)}\tthe cat sat on the {number} mat. it ran\tthe dog\n" for number in range(_NUM_DOCUMENTS)]
    return "id\ttext\ttitle\n" + "".join([*rows[:5], _BAD_ROWS[0], *rows[5:12], *_BAD_ROWS[1:], *rows[12:]])
