"""The cost of checksums on a warm search.

Twice: by whole searches with and without them, in turns; and inside one search, where each step that checks (the scores
of candidates, the rows that are shown) is taken twice in a row, with and without, so that what else the machine does
weighs on both alike. `stages` is the ratio with those two times of each step put into the time of all the rest.
"""

import contextlib
import itertools
from functools import partial
from unittest import mock

import numpy as np

import mvindex
from mvindex.search import rescore
from mvindex.store import reader
from mvindex.store.reader import SnapshotReader
from mvindex.store.segments import MappedSegment
from mvindex.store.views import MappedViews
from trust_parts.data import NUM_QUERIES, cached_indexes
from trust_parts.turns import now, paired, ratio_text, ratios, timed

# What checks, and what takes its place; mock.ANY equals every checksum that was stored.
CHECKS = {
    "documents": [
        (MappedViews, "check_documents", lambda *_: None),
    ],
    "rows": [
        (reader, "text_checksum", lambda *_: mock.ANY),
        (reader, "metadata_checksum", lambda *_: mock.ANY),
        (reader, "check_document", lambda *_: None),
    ],
    "blocks": [(MappedSegment, "check", lambda *_: None)],
}
STEPS = {"documents": (rescore, "score_pairs"), "rows": (SnapshotReader, "documents")}


def without(*names):
    """Inside it, what these checksums are of is taken as it is."""
    stack = contextlib.ExitStack()
    for owner, name, instead in itertools.chain(*map(CHECKS.get, names)):
        stack.enter_context(mock.patch.object(owner, name, instead))
    return stack


class Steps:
    """Inside it, steps are taken with and without their checksums, in this order; seconds, (2, clocks) a step, grow."""

    def __init__(self, order, seconds):
        self._order, self._seconds = order, seconds

    def twice(self, name, step, *args):
        for is_without in self._order:
            with without(name) if is_without else contextlib.nullcontext():
                begin = now()
                result = step(*args)
                self._seconds[name][int(is_without)] += now() - begin
        return result

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        for name, (owner, attribute) in STEPS.items():
            step = getattr(owner, attribute)
            instead = lambda *args, name=name, step=step: self.twice(name, step, *args)  # noqa: E731
            self._stack.enter_context(mock.patch.object(owner, attribute, instead))
        return self

    def __exit__(self, *error):
        self._stack.close()


def stage_times(calls, options):
    """Seconds (rounds, 2, clocks) of whole searches with and without checksums, by steps taken twice.

    And the share that each kind of checksum adds to the time without any, (rounds, kinds, clocks).
    """
    times, shares = [], []
    for number in range(options.rounds + 1):
        whole, seconds = np.zeros(2), {name: np.zeros((2, 2)) for name in STEPS}
        # What is done second finds all in the cache: each side is second once a round.
        for order in ((False, True), (True, False)):
            with Steps(order, seconds):
                whole += timed(calls[number % len(calls)])
        both = sum(seconds.values())
        times.append(whole - both.sum(axis=0) + both)
        shares.append([(one[0] - one[1]) / times[-1][1] for one in seconds.values()])
    return np.array(times[1:]) / 2, np.array(shares[1:])


def measure_search(options):
    kinds, scorings = options.kinds.split(","), options.scorings.split(",")
    paths, queries = cached_indexes(kinds, options)
    batches, top_ks = ([int(one) for one in given.split(",")] for given in (options.batches, options.top_k))
    for kind in kinds:
        with mvindex.open(paths[kind]) as index:
            for scoring, batch, top_k in itertools.product(scorings, batches, top_ks):
                # Single questions differ: several are asked, the same ones of both sides. The first search touches all.
                asked = [queries[at : at + batch] for at in range(0, min(16 * batch, NUM_QUERIES), batch)]
                calls = [partial(index.search, one, top_k=top_k, scoring=scoring) for one in asked]
                for call in calls:
                    call()
                stages, shares = stage_times(calls, options)
                added = dict(zip(STEPS, np.median(shares, axis=0)[:, 1].tolist(), strict=True))
                row = {"part": "search", "kind": kind, "scoring": scoring, "batch": batch, "top_k": top_k}
                row |= {"stages": ratios(stages), "added": added}
                if options.whole:
                    prepare = lambda number, calls=calls: calls[number % len(calls)]  # noqa: E731
                    row["whole"] = ratios(paired(prepare, partial(without, *CHECKS), options.whole))
                yield row


def search_line(row):
    name = f"{row['kind']:5s} {row['scoring']:4s} batch {row['batch']:3d} top_k {row['top_k']:3d}"
    added = " ".join(f"{kind} +{100 * share:.2f} %" for kind, share in row["added"].items())
    lines = [name, f"  stages {ratio_text(row['stages'])}  {added}"]
    return "\n".join([*lines, *([f"  whole  {ratio_text(row['whole'])}"] if "whole" in row else [])])
