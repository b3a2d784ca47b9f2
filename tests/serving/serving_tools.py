"""A real server in a separate process, for tests."""

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np

import mvindex
from mvindex import Document
from mvindex.testing import unit
from mvindex_connectors.server.config import ServerConfig
from mvindex_connectors.server.lifecycle import Server

ENCODER_SPEC = "tiny"
START_S = 120
# What forks servers, where they need not be programs of their own.
fork = None


def wait_for(happened, seconds=20):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


class NoObserver:
    """Keeps no figures of batches."""

    def observe_batch(self, size, waited_s, stages):
        pass


class Serving:
    """A running `mvindex serve`: its addresses, and its log so far."""

    def __init__(self, process):
        self.process = process
        self.log = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        line = process.stdout.readline()
        if not line:
            process.wait(START_S)
            self._reader.join(5)
            raise RuntimeError("the server did not start: " + "".join(self.log))
        addresses = json.loads(line)
        self.grpc, self.http = addresses["grpc"], addresses["http"]
        self.target = self.grpc.partition("://")[2]

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def url(self, name="a"):
        return f"{self.grpc}/{name}"

    def calls(self, method=None):
        """Return the logged calls."""
        rows = [json.loads(line) for line in list(self.log) if line.startswith("{")]
        return [row for row in rows if row["message"] == "call" and method in (None, row["method"])]

    def stop(self, number=signal.SIGTERM, timeout=60):
        """Stop the server and return the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(timeout)
        self.close()
        return status

    def close(self):
        """Kill the process if it is running, and close its pipes."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()


def start(*args, env=None, open_files=None):
    """Start a server; open_files: its limit of descriptors.

    Tests of this folder have it forked, see tests/serving/forked_servers.py, but for one of an environment of its own.
    """
    arguments = [*map(str, args), *(() if "--port" in args else ("--port", "0"))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
    if fork is not None and env is None:
        process = fork(arguments, environment, open_files)
    else:
        process = subprocess.Popen(
            [sys.executable, "-m", "mvindex", "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=None if open_files is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, open_files),
        )
    try:
        return Serving(process)
    except BaseException:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            pipe.close()
        raise


@contextlib.contextmanager
def served(*args, env=None, open_files=None):
    """Run a server, which must end with status 0."""
    serving = start(*args, env=env, open_files=open_files)
    try:
        yield serving
        assert serving.process.poll() is None, "".join(serving.log)
        assert serving.stop() == 0, "".join(serving.log)
    finally:
        serving.close()


@contextlib.contextmanager
def far_away(serving, delay_s):
    """Yield a port that forwards to the server with a delay of delay_s in both directions."""
    host, port = serving.target.rsplit(":", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sockets = []

        def pump(source, sink):
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    time.sleep(delay_s)
                    sink.sendall(data)
                sink.shutdown(socket.SHUT_WR)

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    near, _ = listener.accept()
                    far = socket.create_connection((host, int(port)))
                    sockets.extend((near, far))
                    for pair in ((near, far), (far, near)):
                        threading.Thread(target=pump, args=pair, daemon=True).start()

        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join(10)
            for one in sockets:
                one.close()


def vectors(count, dim=16, seed=1):
    return unit(np.random.default_rng(seed).standard_normal((count, dim)))


def fill(path, count=50, dim=16, views=2, seed=3):
    """Create an index of given vectors at path: d0, d1, ... with their number in the metadata; return the vectors."""
    rows = vectors(count * views, dim, seed).reshape(count, views, dim)
    with mvindex.create(path, dim=dim) as index:
        index.add_views([Document(f"d{n}", f"text {n}", f"title {n}", {"n": n}) for n in range(count)], rows)
    return rows


class ServedHere:
    """Servers in this process, one for each list of indexes, so that a test can move their indexes on."""

    def __init__(self, *indexes, **settings):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        given = {"port": 0, "is_read_only": True, "drain_s": 1, **settings}
        configs = [ServerConfig(indexes=own, **given) for own in indexes]
        self._servers = [Server(config) for config in configs]
        self.addresses = [self._run(server.start()).grpc for server in self._servers]

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def refresh(self):
        """Move all indexes on to their latest state."""
        for server in self._servers:
            for service in server._services.values():
                service.index.refresh()

    @contextlib.contextmanager
    def hanging(self):
        """Let the servers take connections and respond to nothing."""
        goes_on = threading.Event()
        self._loop.call_soon_threadsafe(goes_on.wait)
        try:
            yield
        finally:
            goes_on.set()

    def close(self):
        if self._loop.is_closed():
            return
        for server in self._servers:
            self._run(server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()
