"""The cost of checksums on a warm search: whole searches with and without them, in turns."""

import contextlib
import itertools
from functools import partial
from unittest import mock

import mvindex
from mvindex.store import reader
from mvindex.store.views import MappedSegment, MappedViews
from trust_parts.data import NUM_QUERIES, cached_indexes
from trust_parts.turns import paired, ratio_text, ratios

# What checks, and what takes its place; mock.ANY equals every checksum that was stored.
CHECKS = (
    (MappedViews, "check_documents", lambda *_: None),
    (MappedSegment, "check", lambda *_: None),
    (reader, "text_checksum", lambda *_: mock.ANY),
    (reader, "metadata_checksum", lambda *_: mock.ANY),
    (reader, "check_document", lambda *_: None),
)


def without_checksums():
    """Return a context in which nothing is compared with its checksum."""
    stack = contextlib.ExitStack()
    for owner, name, instead in CHECKS:
        stack.enter_context(mock.patch.object(owner, name, instead))
    return stack


def measure_search(options):
    kinds, scorings = options.kinds.split(","), options.scorings.split(",")
    paths, queries = cached_indexes(kinds, options)
    batches, top_ks = ([int(one) for one in given.split(",")] for given in (options.batches, options.top_k))
    for kind in kinds:
        with mvindex.open(paths[kind]) as index:
            for scoring, batch, top_k in itertools.product(scorings, batches, top_ks):
                # Single queries differ: several are made, the same ones of both sides. The first search touches all.
                parts = [queries[at : at + batch] for at in range(0, min(16 * batch, NUM_QUERIES), batch)]
                calls = [partial(index.search, one, top_k=top_k, scoring=scoring) for one in parts]
                for call in calls:
                    call()
                prepare = lambda number, calls=calls: calls[number % len(calls)]  # noqa: E731
                row = {"part": "search", "kind": kind, "scoring": scoring, "batch": batch, "top_k": top_k}
                yield row | ratios(paired(prepare, without_checksums, options.rounds))


def search_line(row):
    name = f"{row['kind']:5s} {row['scoring']:4s} batch {row['batch']:3d} top_k {row['top_k']:3d}"
    return f"{name}  {ratio_text(row)}"
