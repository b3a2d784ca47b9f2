"""A shell whose `mvindex` runs in this process, since one of its own spends seconds on importing torch.

`mvindex`, found first on the shell's PATH, hands its arguments, folder and input over a socket to the one who runs the
shell, and writes what comes back. `mvindex serve` alone is a process of its own.
"""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.cli import mvindex

STAND_IN = """\
#!{python} -SE
import json, os, socket, sys
if sys.argv[1:2] == ["serve"]:
    os.execv({python!r}, [{python!r}, "-m", "mvindex", *sys.argv[1:], *{serving!r}])
asked = {{"args": sys.argv[1:], "folder": os.getcwd(), "input": sys.stdin.buffer.read().decode()}}
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    line.sendall(json.dumps(asked).encode())
    line.shutdown(socket.SHUT_WR)
    answer = json.loads(b"".join(iter(lambda: line.recv(65536), b"")))
sys.stderr.write(answer["error"])
sys.stdout.write(answer["output"])
sys.exit(answer["status"])
"""
LIMIT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a block ended: status, and what it wrote."""

    status: int
    output: str
    error: str


class Shell:
    """One bash for all blocks of a page: its variables, folder and background jobs last until close()."""

    def __init__(self, arguments_for, serving):
        """Bash in the current folder; arguments_for(args) are given in place of args, `serving` to `serve` as well."""
        self._arguments_for = arguments_for
        # Not in a test's own folder, whose name is too long for a socket's.
        self._aside = aside = Path(tempfile.mkdtemp(prefix="shell-"))
        self._listener = socket.socket(socket.AF_UNIX)
        address = str(aside / "calls")
        self._listener.bind(address)
        self._listener.listen()
        tools = aside / "tools"
        tools.mkdir()
        text = STAND_IN.format(python=sys.executable, address=address, serving=serving)
        self._write_tool(tools / "mvindex", text)
        self._write_tool(tools / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        self._write_tool(tools / "pip", "#!/bin/sh\necho 'pip is not for tests: docs_not_run.py' >&2\nexit 1\n")
        self._statuses, said = os.pipe()
        environment = {**os.environ, "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self._bash = subprocess.Popen(
            ["bash"], env=environment, stdin=subprocess.PIPE, pass_fds=[said], start_new_session=True
        )
        os.close(said)
        self._said = said
        self._tell("set -euo pipefail")

    @staticmethod
    def _write_tool(path, text):
        path.write_text(text)
        path.chmod(0o755)

    def _tell(self, line):
        self._bash.stdin.write(f"{line}\n".encode())
        self._bash.stdin.flush()

    def run(self, code, name):
        """How this code ended."""
        script, output, error = (self._aside / f"{name}.{end}" for end in ("sh", "out", "err"))
        script.write_text(code, encoding="utf-8")
        self._tell(f". {script} >{output} 2>{error} </dev/null {self._said}>&-; echo done >&{self._said}")
        is_done = self._serve_until_done()
        status = 0 if is_done else self._bash.wait(timeout=10)
        return Ended(status=status, output=output.read_text("utf-8"), error=error.read_text("utf-8"))

    def _serve_until_done(self):
        """True once bash says that it is done, False where it ended; meanwhile its calls are answered."""
        until = time.monotonic() + LIMIT_S
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self._listener, self._statuses], [], [], left)
            if self._listener in ready:
                self._answer()
            elif self._statuses in ready:
                return os.read(self._statuses, 100) != b""
        raise TimeoutError(f"a block took more than {LIMIT_S} s")

    def _answer(self):
        line, _ = self._listener.accept()
        with line:
            asked = json.loads(b"".join(iter(lambda: line.recv(65536), b"")))
            done = mvindex(*self._arguments_for(asked["args"]), cwd=asked["folder"], input=asked["input"])
            answer = {"status": done.returncode, "output": done.stdout, "error": done.stderr}
            line.sendall(json.dumps(answer).encode())

    def close(self):
        """End bash and every process that it left running."""
        self._bash.stdin.close()
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait(timeout=10)
        os.close(self._statuses)
        self._listener.close()
        shutil.rmtree(self._aside)
