"""The command line as a user calls it, and the files that it is given and must keep to."""

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

from mvindex.cli import main

ROOT = Path(__file__).parents[2]
PASSAGES = ROOT / "examples" / "squad" / "passages.tsv"
SCHEMAS = ROOT / "schemas" / "records"
COMMAND = [sys.executable, "-m", "mvindex"]


def mvindex(*args, cwd, input=None, text=True, env=None):
    """Run the command and return its exit status and output, as text by default.

    It runs in this process, since one of its own spends seconds on importing torch; in its own where env is given.
    """
    if env is not None:
        command = [*COMMAND, *map(str, args)]
        return subprocess.run(
            command, cwd=cwd, env=env, input=input, text=text, capture_output=True, check=False, timeout=300
        )
    given = input.encode() if isinstance(input, str) else input or b""
    streams = [io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="") for data in (given, b"", b"")]
    with _standing_in(["mvindex", *map(str, args)], streams, cwd):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    written = []
    for stream in streams[1:]:
        stream.flush()
        written.append(stream.buffer.getvalue().decode() if text else stream.buffer.getvalue())
    return subprocess.CompletedProcess(args, code, *written)


@contextlib.contextmanager
def _standing_in(arguments, streams, folder):
    """Inside it, these are the program's arguments, standard streams and folder."""
    before, folder_before = (sys.argv, sys.stdin, sys.stdout, sys.stderr), Path.cwd()
    sys.argv, (sys.stdin, sys.stdout, sys.stderr) = arguments, streams
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(folder_before)
        sys.argv, sys.stdin, sys.stdout, sys.stderr = before


def ok(done):
    assert done.returncode == 0, done.stderr
    return done


def lines(done):
    """The JSON that it wrote, a value a line."""
    return [json.loads(line) for line in ok(done).stdout.splitlines()]


def schema(name):
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text())


def read_passages(count, first=0):
    with open(PASSAGES, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    return rows[first + 1 : first + count + 1]


def write_tsv(path, rows, header=("id", "text", "title")):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([header, *rows])
    return path
