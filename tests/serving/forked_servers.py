"""Servers that are forked by a process which has imported what they need: none pays a second of a CPU for imports.

That process opens no index and runs one thread. A server has the arguments, the environment, the folder and the limit
of descriptors that it is started with, runs what `python -m mvindex serve` runs, and ends as any program does.
"""

import atexit
import importlib.util
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORTED = (
    "mvindex.__main__",
    "mvindex.cli",
    "mvindex_connectors.server.cli",
    "mvindex_connectors.server.http",
    "mvindex_connectors.server.lifecycle",
    "uvloop",
)
# Of a request: arguments, and the environment.
MOST_BYTES = 1 << 17


class ForkedServer:
    """The process of a server, with what tests use of subprocess.Popen."""

    def __init__(self, arguments, environment, open_files):
        (mine, out), (my_errors, errors) = os.pipe(), os.pipe()
        self._forker, self.returncode = _forker(), None
        request = {"arguments": arguments, "environment": environment, "folder": os.getcwd(), "open_files": open_files}
        self.pid = self._forker.ask(request, [out, errors])
        os.close(out)
        os.close(errors)
        self.stdout, self.stderr = (open(each, encoding="utf-8") for each in (mine, my_errors))

    def poll(self):
        if self.returncode is None:
            self.returncode = self._forker.ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout=None):
        begun = time.monotonic()
        while self.poll() is None:
            if timeout is not None and time.monotonic() > begun + timeout:
                raise subprocess.TimeoutExpired("mvindex serve", timeout)
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


@lru_cache
def _forker():
    return _Forker()


class _Forker:
    """The process that forks, as seen by those that ask it."""

    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.serving.forked_servers", str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._lock = threading.Lock()
        atexit.register(self.end)

    def ask(self, request, handles=()):
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], handles)
            return json.loads(self._socket.recv(MOST_BYTES))

    def end(self):
        self._socket.close()
        self._process.wait()


def _serve(requests):
    """Answer requests until their socket is closed; return in each server, whose request it is, with its streams."""
    while True:
        data, handles, _, _ = socket.recv_fds(requests, MOST_BYTES, 2)
        if not data:
            sys.exit()
        request = json.loads(data)
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if not answer:
                return request, handles
            for handle in handles:
                os.close(handle)
        requests.send(json.dumps(answer).encode())


def main():
    for name in IMPORTED:
        importlib.import_module(name)
    if importlib.util.find_spec("numba"):
        # What it imports before the first loop is loaded.
        from numba.core.registry import cpu_target

        for context in (cpu_target.typing_context, cpu_target.target_context):
            context.refresh()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        request, handles = _serve(requests)
    for handle, stream in zip(handles, (1, 2), strict=True):
        os.dup2(handle, stream)
        os.close(handle)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    if request["open_files"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, request["open_files"])
    sys.argv = ["mvindex", "serve", *request["arguments"]]
    sys.modules["mvindex.__main__"].main()


if __name__ == "__main__":
    main()
