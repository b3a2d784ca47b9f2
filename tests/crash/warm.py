"""Programs of this folder, each run in a child forked from one process that has loaded what they import.

As processes of their own they would spend a second each on that. The process that forks them opens no index and runs
one thread; it stays until its tests' process ends. As a program, it is that process: it reads a line of JSON for each
run, and writes a line with the status.
"""

import atexit
import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

from faults_disk import INSIDE, own_mounts  # noqa: E402 - the folder of helpers first

LIMIT_S = 1800.0


def run(program: str, *arguments: str, is_mounting: bool = False) -> subprocess.CompletedProcess[str]:
    """How the program ended, and what it wrote. is_mounting: it runs where it may mount, which must be possible."""
    return _warm(is_mounting).run(program, arguments)


@lru_cache
def _warm(is_mounting: bool) -> "_Warm":
    warm = _Warm((own_mounts() or []) if is_mounting else [])
    atexit.register(warm.end)
    return warm


class _Warm:
    """The process that forks, as those see it that ask for runs. before: the command that starts it."""

    def __init__(self, before: list[str]) -> None:
        env = {**os.environ, INSIDE: "1" if before else ""}
        command = [*before, sys.executable, __file__]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, cwd=FOLDER)

    def run(self, program: str, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        """How the program ended; TimeoutError when it does not, and RuntimeError when there is nobody to run it."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            request = {"program": program, "arguments": arguments, "out": str(out), "err": str(err)}
            os.write(self._process.stdin.fileno(), json.dumps(request).encode() + b"\n")
            if not select.select([self._process.stdout], [], [], LIMIT_S)[0]:
                self.end()
                raise TimeoutError(f"{program} {arguments} has not ended after {LIMIT_S} s")
            status = self._process.stdout.readline()
            if not status:
                raise RuntimeError(f"{program} {arguments}: the process that forks it has ended")
            return subprocess.CompletedProcess(arguments, int(status), out.read_text(), err.read_text())

    def end(self) -> None:
        """Nothing; the process has ended."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()


def serve() -> None:
    """Nothing; all that was asked for has run."""
    from faults_runner import load_modules
    from kill_runner import prepare

    prepare()
    load_modules()
    for line in sys.stdin:
        request = json.loads(line)
        main = importlib.import_module(request["program"]).main
        pid = os.fork()
        if pid == 0:
            _become(request, main)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(request: dict[str, Any], main: Callable[[], None]) -> NoReturn:
    """Never: this process is the program's from now on."""
    for number, path in enumerate((os.devnull, request["out"], request["err"])):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY)
        os.dup2(handle, number)
        os.close(handle)
    sys.argv = [str(FOLDER / f"{request['program']}.py"), *request["arguments"]]
    main()
    sys.exit(0)


if __name__ == "__main__":
    serve()
