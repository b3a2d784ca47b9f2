"""Readers in processes of their own, and what a writer does to the index beneath them, round by round."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter

import mvindex
from tests.contract import second_process
from tests.contract.second_process import CORE, GUESTS

KINDS = ("flat", "hnsw", "exact")
# Versions that a reader saw, or looks at the one that it keeps; rounds in which everything is done once.
ENOUGH, FEWEST_ROUNDS = 4, 10
# A busy machine may take its time.
MOST_SECONDS = 600


class Rounds:
    """Versions of the whole core, one batch each; guests come and go; engines are built and rows compacted."""

    def __init__(self, index):
        self.index = index
        self.version = 0
        self.done = Counter()
        self.give(CORE, tag="first")

    def give(self, ids, tag):
        documents = second_process.documents(ids, self.version, tag)
        report = self.index.add_views(documents, second_process.views(ids, self.version))
        for name in ("added", "replaced", "updated"):
            self.done[f"documents {name}"] += getattr(report, name)

    def run(self, seconds, until):
        """Make rounds for so long, and for longer until enough was done and seen."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds or self.version < FEWEST_ROUNDS or not until():
            self.round()
            assert time.monotonic() - begin < seconds + MOST_SECONDS

    def round(self):
        self.version += 1
        self.done["versions"] += 1
        self.give(CORE, tag=f"of {self.version}")
        turn = self.version % 4
        if turn == 0:
            self.give(GUESTS, tag="guest")
        elif turn == 1:
            self.give(CORE, tag=f"again of {self.version}")
        elif turn == 2:
            self.done["documents deleted"] += self.index.delete(filter={"group": "guest"})
        else:
            self.done["documents deleted"] += self.index.delete(ids=GUESTS)
        if self.version % 3 == 0:
            self.build(KINDS[self.version // 3 % 3])
        if self.version % 5 == 0:
            self.index.compact()
            self.done["compactions"] += 1

    def build(self, kind):
        self.index.build(kind)
        self.done[f"builds of {kind}"] += 1


class Reader:
    """A process that reads the index until it is asked what it saw. looks: the version of the core that each showed."""

    def __init__(self, path, how, *options):
        self.how = how
        self.process = subprocess.Popen(
            [sys.executable, second_process.__file__, str(path), how, *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.looks = []
        self._told = None
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def has_seen_enough(self):
        """Return whether it saw some versions, or looked as often at the one that it keeps; or has ended."""
        seen = self.looks if self.how == "keep" else set(self.looks)
        return len(seen) >= ENOUGH or not self._listener.is_alive()

    def told(self):
        """Return what it saw: reads by name, versions, mixes, missing, errors."""
        self.process.stdin.close()
        self._listener.join()
        assert self.process.wait() == 0
        return self._told

    def end(self):
        """End the process, and close its pipes."""
        self.process.kill()
        self._listener.join()
        with self.process:
            pass

    def _listen(self):
        for line in self.process.stdout:
            said = json.loads(line)
            if isinstance(said, dict):
                self._told = said
            else:
                self.looks.append(said)


def watched(path, hows, seconds, *options):
    """Return what a reader of each of the hows saw of rounds for so many seconds, or longer until they saw enough."""
    with mvindex.create(path, dim=2, dtype="fp32") as index:
        rounds = Rounds(index)
        readers = [Reader(path, how, *options) for how in hows]
        try:
            wait_until(lambda: all(reader.looks or reader.has_seen_enough() for reader in readers))
            rounds.run(seconds, until=lambda: all(reader.has_seen_enough() for reader in readers))
            told = [reader.told() for reader in readers]
        finally:
            for reader in readers:
                reader.end()
        assert len(index) in (len(CORE), len(CORE) + len(GUESTS))
    return told, rounds.done


def wait_until(is_done):
    begin = time.monotonic()
    while not is_done():
        assert time.monotonic() - begin < MOST_SECONDS
        time.sleep(0.02)
