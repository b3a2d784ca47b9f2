"""The cost of fsync on ingest: the same documents into a fresh index, the disk at rest before each run."""

import contextlib
import itertools
import os
import shutil
import sqlite3
import sys
from unittest import mock

import numpy as np
from vectors import CACHE

import mvindex
from mvindex.durable import EVENT
from mvindex.store.connections import ReadConnection
from trust_parts.data import documents_with_views
from trust_parts.turns import now, paired, ratio_text, ratios

INGESTED = 4 * 1024


class LaxConnection(ReadConnection):
    """A connection to SQLite that never waits for the disk."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA synchronous=OFF")

    def execute(self, sql, *parameters):
        return super().execute(sql.replace("synchronous=FULL", "synchronous=OFF"), *parameters)


def without_fsync():
    """Return a context in which nothing waits for the disk."""
    stack, connect = contextlib.ExitStack(), sqlite3.connect
    stack.enter_context(mock.patch("os.fsync", lambda _: None))
    lax = lambda *args, **kwargs: connect(*args, **kwargs | {"factory": LaxConnection})  # noqa: E731
    stack.enter_context(mock.patch("sqlite3.connect", lax))
    return stack


class Waits:
    """Wall seconds between the announcements of fsync and commit, before and after: no more than these can be saved."""

    def __init__(self):
        self.seconds, self._begin = 0.0, 0.0
        sys.addaudithook(self._hear)

    def _hear(self, event, args):
        if event != EVENT or args[1] not in ("fsync", "commit"):
            return
        if args[0] == "before":
            self._begin = now()[0]
        else:
            self.seconds += now()[0] - self._begin


class Runs:
    """Ingests of the same documents, each into an index of its own under build/bench, which is on the real disk."""

    def __init__(self, method, given, settings):
        self._method, self._given, self._settings = method, given, settings
        self._folder = CACHE / f"ingest-{os.getpid()}"
        self._names = itertools.count()
        self._waits, self._shares = Waits(), []

    def prepare(self, _):
        """Return a call that ingests all; dirty pages of the run before are written out first."""
        shutil.rmtree(self._folder, ignore_errors=True)
        index = mvindex.create(self._folder / f"{next(self._names)}.mvx", **self._settings)
        os.sync()

        def call():
            self._waits.seconds, begin = 0.0, now()[0]
            with index:
                getattr(index, self._method)(*self._given)
            self._shares.append(self._waits.seconds / (now()[0] - begin))

        return call

    def measure(self, options):
        try:
            found = ratios(paired(self.prepare, without_fsync, options.rounds))
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        waiting = np.max(np.reshape(self._shares, (-1, 2)), axis=1)  # the other run of a round waits for nothing
        return {"part": "ingest", "what": self._method, **found, "waits": float(np.median(waiting[2:]))}


def measure_ingest(options):
    chunks = list(documents_with_views(INGESTED, options))
    given = [[item for chunk in chunks for item in chunk[side]] for side in (0, 1)]
    yield {"documents": INGESTED, **Runs("add_views", given, {"dim": options.dim}).measure(options)}
    if options.encode:
        from mvindex.corpus import read_documents
        from mvindex.encoder import load_encoder

        texts = list(itertools.islice(read_documents(str(options.encode)), options.encoded))
        runs = Runs("add", (texts,), {"encoder": load_encoder("minilm")})
        yield {"documents": len(texts), **runs.measure(options)}


def ingest_line(row):
    waits = f"inside fsync and commit {100 * row['waits']:.1f} % of wall time"
    return f"{row['what']} of {row['documents']} documents\n  {ratio_text(row)}  {waits}"
