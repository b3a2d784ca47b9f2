"""Kills of a process that writes to Milvus, or of the server beneath it, and what must hold afterwards.

As a program, the writer: it adds and replaces documents until it is killed, and reports what was acknowledged.

    python -m tests.durability.kills.milvus ADDRESS FIRST_BATCH
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import mvindex
from mvindex import Document
from mvindex.testing import assert_alike, brute_force
from tests.durability.processes import ROOT

DIM = 8
BATCH = 24
# Documents are written repeatedly: batch number v * CYCLE + n // BATCH writes version v of document n.
CYCLE = 6
_FIRST_WAIT_S = 60


def views_of(number, version):
    """Return one to five unit views of a document; their values depend on its version."""
    rng = np.random.default_rng([number, version])
    rows = rng.standard_normal((1 + (number + version) % 5, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)


def batch(number):
    """Return the documents and views of a batch."""
    version, part = divmod(number, CYCLE)
    numbers = range(part * BATCH, (part + 1) * BATCH)
    documents = [Document(f"d{each}", f"{each} {version}", metadata={"version": version}) for each in numbers]
    return documents, [views_of(each, version) for each in numbers]


def versions(last):
    """Return the version of each document by id once batch number `last` is written."""
    found = {}
    for number in range(max(0, last + 1 - CYCLE), last + 1):
        version, part = divmod(number, CYCLE)
        for each in range(part * BATCH, (part + 1) * BATCH):
            found[f"d{each}"] = version
    return found


def check_terms(index, documents, views):
    """Check that searches by terms return what an index in a directory of the same documents returns."""
    with tempfile.TemporaryDirectory() as folder, mvindex.create(f"{folder}/s.mvx", dim=DIM, lexical="unicode") as same:
        same.add_views(documents, [views[document.id] for document in documents])
        for text in ("1 0", "7 2 3", "17 1"):
            for mode in ("lexical", "hybrid"):
                options = {"text": text, "mode": mode, "top_k": 20}
                found, wanted = (each.search(np.ones(DIM), **options) for each in (index, same))
                assert_alike(found, wanted, f"{mode} {text}")


class Rounds:
    """Rounds of kills on one index. server: None, or a server whose `kill` and `start` make the round."""

    def __init__(self, address, rng, server=None):
        self._address, self._rng, self._server = address, rng, server
        self.acknowledged = self.tried = -1
        # Of a server without sparse vectors there is none.
        with mvindex.create(address, dim=DIM, lexical="unicode") as index:
            self._has_lexical = index.info().lexical is not None

    def run(self):
        """Let a writer go on where the last one ended, kill it at a random moment, and check everything."""
        command = [sys.executable, "-m", __name__, self._address, str(self.acknowledged + 1)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        reading = threading.Thread(target=self._read, args=(writer,))
        reading.start()
        deadline = time.monotonic() + _FIRST_WAIT_S
        before = self.tried
        # A kill before anything was acknowledged could lose nothing: the first round waits for that.
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
        """Check that each document is whole, in the last acknowledged version or the one that was being written."""
        oldest, newest = versions(self.acknowledged), versions(self.tried)
        with mvindex.open(self._address) as index:
            documents = list(index)
            found = {document.id: int(document.text.split()[1]) for document in documents}
            assert len(found) == len(documents) == len(index), "a document twice, or a wrong count"
            for doc_id, version in oldest.items():
                assert doc_id in found, f"{doc_id} was acknowledged and is lost"
                assert version <= found[doc_id] <= newest[doc_id], f"{doc_id} has version {found[doc_id]}"
            assert set(found) <= set(newest), "a document that was never written"
            for document in documents:
                assert document.metadata == {"version": found[document.id]}
            views = {doc_id: views_of(int(doc_id[1:]), version) for doc_id, version in found.items()}
            ordinals = {doc_id: int(doc_id[1:]) for doc_id in views}
            for query in self._rng.standard_normal((3, DIM)).astype(np.float32):
                result = index.search(query, 20)
                truth = brute_force(views, query, 20, ordinals)
                assert result.exact
                assert [(hit.id, np.float32(hit.score)) for hit in result.hits] == [(row[0], row[1]) for row in truth]
            if self._has_lexical:
                check_terms(index, documents, views)
            assert index.admin.verify().is_sound

    def finish(self):
        """Remove views that no record names and return their number; the index then takes documents."""
        with mvindex.open(self._address) as index:
            dropped = index.admin.compact().dropped
            assert index.admin.compact().dropped == 0
            index.add_views(*batch(self.acknowledged + 1))
            return dropped


def _report(line):
    # In one call: a kill leaves the line whole or absent, where print() may make several writes.
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def main(address, first):
    """Write batches until killed."""
    with mvindex.open(address) as index:
        number = first
        while True:
            _report(f"try {number}")
            index.add_views(*batch(number))
            _report(f"ack {number}")
            number += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
