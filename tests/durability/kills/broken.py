"""Stores that break a promise on purpose, to show that the kills find it."""

import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import xxhash

from mvindex.store import writer
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.embedded_writer import EmbeddedWriter
from mvindex.store.rows import PackedViews
from mvindex.store.views import CommittedSegment


def commit_before_append():
    """Commit to the catalog before the bytes are written."""
    later, commit, append = [], EmbeddedWriter.commit, writer.append

    def promised(directory, before, parts):
        parts = [np.ascontiguousarray(part) for part in parts]
        path = directory / before.name
        old = path.read_bytes()[: before.size_bytes] if path.exists() else b""
        data = old + b"".join(part.tobytes() for part in parts)
        later.append((directory, before, parts))
        return CommittedSegment(before.name, len(data), np.array([xxhash.xxh3_64_intdigest(data)], dtype=np.uint64))

    def broken(writer, batch, known):
        commit(writer, batch, known)
        while later:
            append(*later.pop(0))

    writer.append, EmbeddedWriter.commit = promised, broken


def two_commits():
    """Make a batch visible in two halves."""
    commit = EmbeddedWriter.commit

    def broken(writer, batch, known):
        half = len(batch.documents) // 2
        for part in (range(half), range(half, len(batch.documents))):
            if part:
                commit(writer, _part(batch, part), known)

    EmbeddedWriter.commit = broken


def acknowledged_early():
    """Store a batch only when the next one comes, or at the end."""
    waiting, commit, writing = [], EmbeddedWriter.commit, EmbeddedStore.writing

    def broken(writer, *given):
        waiting.append(given)
        if len(waiting) > 1:
            commit(writer, *waiting.pop(0))

    @contextmanager
    def to_the_end(store):
        with writing(store) as writer:
            yield writer
            while waiting:
                commit(writer, *waiting.pop(0))

    EmbeddedWriter.commit, EmbeddedStore.writing = broken, to_the_end


def litter():
    """Leave a file behind in each process."""
    init = EmbeddedStore.__init__

    def broken(store, directory):
        init(store, directory)
        Path(directory, f"left-{os.getpid()}").touch()

    EmbeddedStore.__init__ = broken


def build_forgotten():
    """Acknowledge a build without a setting that names its engine."""
    EmbeddedWriter.change_settings = lambda writer, **settings: None


BROKEN = {
    "commit-before-append": commit_before_append,
    "two-commits": two_commits,
    "acknowledged-early": acknowledged_early,
    "litter": litter,
    "build-forgotten": build_forgotten,
}


def _part(batch, part):
    begin, end = batch.views.starts[part.start], batch.views.starts[part.stop]
    starts = batch.views.starts[part.start : part.stop + 1] - begin
    views = PackedViews(batch.views.rows[begin:end], starts, batch.views.spans[begin:end])
    return replace(
        batch,
        documents=batch.documents[part.start : part.stop],
        content_hashes=batch.content_hashes[part.start : part.stop],
        views=views,
    )
