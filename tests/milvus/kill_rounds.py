"""Rounds of kill -9 of a writer, or of the server beneath it, and what must hold after each."""

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from kill_writer import BATCH, CYCLE, DIM, batch, views_of

import mvindex
from mvindex.testing import brute_force

_WRITER = Path(__file__).with_name("kill_writer.py")
_FIRST_WAIT_S = 60


class Rounds:
    """Rounds on one index. kill_server: None, or a server whose kill() and start() make the round."""

    def __init__(self, address, rng, server=None):
        self._address, self._rng, self._server = address, rng, server
        self.acknowledged = self.tried = -1
        with mvindex.create(address, dim=DIM):
            pass

    def run(self):
        """Nothing; a writer went on where the last ended, was killed at a moment by chance, and all was checked."""
        command = [sys.executable, str(_WRITER), self._address, str(self.acknowledged + 1)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        reading = threading.Thread(target=self._read, args=(writer,))
        reading.start()
        deadline = time.monotonic() + _FIRST_WAIT_S
        before = self.tried
        # A kill before anything was acknowledged could lose nothing: the first waits for that.
        while (self.acknowledged < 0 or self.tried == before) and writer.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(self._rng.uniform(0.0, 1.5))
        if self._server is not None:
            self._server.kill()
            self._server.start()
            until = time.monotonic() + 120
            acknowledged = self.acknowledged
            while self.acknowledged == acknowledged and writer.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
        assert writer.poll() is None, "the writer ended by itself"
        writer.kill()
        writer.wait()
        reading.join()
        self.check()

    def _read(self, writer):
        with contextlib.closing(writer.stdout):
            for line in writer.stdout:
                word, number = line.split()
                if word == "ack":
                    self.acknowledged = int(number)
                else:
                    self.tried = int(number)

    def check(self):
        """Nothing; each document is whole, in the last acknowledged version, or the one that was being written."""
        oldest, newest = versions(self.acknowledged), versions(self.tried)
        with mvindex.open(self._address) as index:
            documents = list(index)
            found = {document.id: int(document.text.split()[1]) for document in documents}
            assert len(found) == len(documents) == len(index), "a document twice, or counted wrongly"
            for doc_id, version in oldest.items():
                assert doc_id in found, f"{doc_id} was acknowledged and is lost"
                assert version <= found[doc_id] <= newest[doc_id], f"{doc_id} is of version {found[doc_id]}"
            assert set(found) <= set(newest), "a document that nobody wrote"
            for document in documents:
                assert document.metadata == {"version": found[document.id]}
            views = {doc_id: views_of(int(doc_id[1:]), version) for doc_id, version in found.items()}
            ordinals = {doc_id: int(doc_id[1:]) for doc_id in views}
            for query in self._rng.standard_normal((3, DIM)).astype(np.float32):
                result = index.search(query, 20)
                truth = brute_force(views, query, 20, ordinals)
                assert result.exact
                assert [(hit.id, np.float32(hit.score)) for hit in result.hits] == [(row[0], row[1]) for row in truth]
            assert index.verify().is_sound

    def finish(self):
        """Views that no record named; afterwards none is left, and the index takes documents."""
        with mvindex.open(self._address) as index:
            dropped = index.compact().dropped
            assert index.compact().dropped == 0
            index.add_views(*batch(self.acknowledged + 1))
            return dropped


def versions(last):
    """The version of each document once batch number `last` is done, by id."""
    found = {}
    for number in range(max(0, last + 1 - CYCLE), last + 1):
        version, part = divmod(number, CYCLE)
        for each in range(part * BATCH, (part + 1) * BATCH):
            found[f"d{each}"] = version
    return found
