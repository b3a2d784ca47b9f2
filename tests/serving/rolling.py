"""Reads while the servers of one index are restarted one by one, and how soon they show a commit.

As a program, the writer: it commits until a file exists, and reports each commit with its time.

    python rolling.py INDEX END
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path

import numpy as np
from serving_tools import Serving, start, wait_for

import mvindex
from mvindex import Document
from mvindex.errors import MvindexError, RemoteError
from mvindex.records import CountCallback, no_progress
from mvindex.testing import unit
from mvindex_connectors.remote import CallSettings, IndexClient

DIM, BATCH, DOCUMENTS = 32, 8, 2000
END_S = 120


@dataclass
class Tally:
    """The reads and restarts of a measurement, and their faults. wrong: reads of what is not whole."""

    reads: int = 0
    failed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    restarts: int = 0
    slowest_s: float = 0.0
    delays_s: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def views(count: int, seed: int) -> np.ndarray:
    """Return (count, 2, DIM) unit vectors."""
    return unit(np.random.default_rng(seed).standard_normal((count, 2, DIM)).astype(np.float32))


def write(path: Path, stopped: Path) -> None:
    """Replace a batch of documents in one commit after the other; each commit has its number in the metadata."""
    with mvindex.open(path) as index:
        number = 0
        while not stopped.exists():
            number += 1
            documents = [Document(f"w{each}", f"{number}", metadata={"commit": number}) for each in range(BATCH)]
            index.add_views(documents, views(BATCH, number))
            print(number, time.time(), flush=True)
            time.sleep(0.02)


class Servers:
    """Read-only servers of one index, each on a port of its own."""

    def __init__(self, path: Path, count: int) -> None:
        self._path, self._ports = path, _free_ports(count)
        self.urls = [f"grpc://127.0.0.1:{port}/a" for port in self._ports]
        self._running = [self._start(port) for port in self._ports]

    def restart(self, number: int) -> int:
        """End a server by SIGTERM, start it again, and return its exit status."""
        status = self._running[number].stop()
        self._running[number] = self._start(self._ports[number])
        return status

    def _start(self, port: str) -> Serving:
        return start(f"--index=a={self._path}", "--read-only", "--log-level", "error", "--port", port)

    def close(self) -> None:
        """End all servers."""
        for serving in self._running:
            serving.close()


def _free_ports(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [str(each.getsockname()[1]) for each in sockets]


def read(client: mvindex.IndexProtocol, tally: Tally, number: int) -> None:
    """Read once, a search, a document or all of a batch, and check what is returned."""
    begun = time.monotonic()
    try:
        if number % 3 == 0:
            hits = client.search(views(1, number)[0, 0], top_k=10).hits
            if len({hit.id for hit in hits}) != 10:
                tally.wrong.append(f"read {number}: expected 10 distinct documents, got {len(hits)}")
        elif number % 3 == 1:
            if client.get(f"d{number % DOCUMENTS}") is None:
                tally.wrong.append(f"read {number}: document d{number % DOCUMENTS} is gone")
        else:
            batch = client.get([f"w{each}" for each in range(BATCH)])
            if len(batch) != BATCH or len({document.metadata["commit"] for document in batch}) != 1:
                tally.wrong.append(f"read {number}: a batch of several commits: {[each.text for each in batch]}")
    except MvindexError as err:
        tally.failed.append(f"read {number}: {type(err).__name__}: {err}")
    with tally.lock:
        tally.slowest_s = max(tally.slowest_s, time.monotonic() - begun)
        tally.reads += 1


def watch(url: str, commits: dict[int, float], tally: Tally, stopped: threading.Event) -> None:
    """Measure how long after a commit one server shows it, while it runs."""
    seen = None
    with IndexClient(url, settings=CallSettings(retry_s=0)) as client:
        while not stopped.wait(0.01):
            try:
                shown = client.get("w0").metadata["commit"]
            except RemoteError:
                seen = None  # this server is being restarted
                continue
            # Of several commits that it shows at once, the first has waited longest.
            if seen is not None and shown > seen and seen + 1 in commits:
                tally.delays_s.append(time.time() - commits[seen + 1])
            seen = shown


class Writer:
    """A process that commits all the time; `commits` has the time of each commit by its number."""

    def __init__(self, path: Path) -> None:
        self.commits: dict[int, float] = {}
        self._end = path.with_name("end")
        command = [sys.executable, __file__, str(path), str(self._end)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        wait_for(lambda: self.commits or self._process.poll() is not None, END_S)

    def _read(self) -> None:
        for line in self._process.stdout:
            number, at = line.split()
            self.commits[int(number)] = float(at)

    def close(self) -> None:
        """Let the writer end."""
        self._end.touch()
        self._process.wait(END_S)
        self._reader.join()
        self._process.stdout.close()


def measure(reads: int, servers: int, clients: int, on_progress: CountCallback = no_progress) -> Tally:
    """Restart the servers one by one, over and over, until so many reads are done, and each was restarted once."""
    tally, stopped = Tally(), threading.Event()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "a.mvx"
        with mvindex.create(path, dim=DIM) as index:
            index.add_views([Document(f"d{n}", f"text {n}") for n in range(DOCUMENTS)], views(DOCUMENTS, 0))
        writer = stack.enter_context(closing(Writer(path)))
        group = stack.enter_context(closing(Servers(path, servers)))

        def work(first: int) -> None:
            with mvindex.open(group.urls) as client:
                for number in count(first, clients):
                    if number >= reads and tally.restarts >= servers:
                        return
                    read(client, tally, number)

        readers = [threading.Thread(target=work, args=(first,)) for first in range(clients)]
        watchers = [threading.Thread(target=watch, args=(url, writer.commits, tally, stopped)) for url in group.urls]
        for thread in (*readers, *watchers):
            thread.start()
            stack.callback(thread.join)
        stack.callback(stopped.set)
        _restart_all(group, readers, tally, on_progress)
    return tally


def _restart_all(group: Servers, readers: list[threading.Thread], tally: Tally, on_progress: CountCallback) -> None:
    """Restart one server after the other while there are reads."""
    told = 0
    for number in cycle(range(len(group.urls))):
        time.sleep(1)
        on_progress(tally.reads - told)
        told = tally.reads
        if not any(thread.is_alive() for thread in readers):
            return
        if (status := group.restart(number)) != 0:
            tally.failed.append(f"server {number}: expected exit status 0 after SIGTERM, got {status}")
        tally.restarts += 1


def report(tally: Tally) -> dict[str, object]:
    """Return the figures."""
    delays = sorted(tally.delays_s) or [float("nan")]
    return {
        "reads": tally.reads,
        "failed": len(tally.failed),
        "wrong": len(tally.wrong),
        "restarts": tally.restarts,
        "slowest_read_s": round(tally.slowest_s, 3),
        "commit_seen_after_s": {
            "median": round(delays[len(delays) // 2], 3),
            "p99": round(delays[int(0.99 * (len(delays) - 1))], 3),
            "max": round(delays[-1], 3),
        },
        "first_faults": [*tally.failed, *tally.wrong][:5],
    }


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
