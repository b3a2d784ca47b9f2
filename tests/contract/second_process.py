"""A reader in a process of its own: `python second_process.py INDEX HOW` reads until its input ends, then tells.

Every document says in its text, title, metadata and views which version it is of; a version is stored in one batch.
The core always has NUM_CORE documents, of one version; of guests there are none or NUM_GUESTS. A tag, in metadata
alone, is the same for a whole version too. What a reader sees otherwise is a mix, or a document missing.

HOW: "refresh" before each look; "keep" the first state for good; "reopen" the index each time; "threads": several read
one index while another one refreshes it; "copy": look at a snapshot of it; "verify" it, then look.
"""

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

import mvindex
from mvindex.engines.scan_numpy import NumpyScan
from mvindex.index import search_engine_of

NUM_CORE, NUM_GUESTS, NUM_THREADS = 40, 15, 3
HOWS = ("refresh", "keep", "reopen", "threads", "copy", "verify")
CORE = [f"core {number}" for number in range(NUM_CORE)]
GUESTS = [f"guest {number}" for number in range(NUM_GUESTS)]
QUERY = np.array([1.0, 0.0], np.float32)
_WHOLE = NUM_CORE + NUM_GUESTS
_LONG = "a text of some length, as long as the page of a database. " * 4


def documents(ids, version, tag):
    """One version of a set; its text differs from every other version's."""
    group = ids[0].split()[0]
    tagged = {"group": group, "version": version, "tag": tag}
    return [mvindex.Document(doc_id, _text(version), str(version), tagged) for doc_id in ids]


def views(ids, version):
    """Two views a document, the best of which scores the version for QUERY."""
    return np.array([[[version, number], [version - 0.5, -number]] for number in range(len(ids))], np.float32)


def _text(version):
    return f"{version}: {_LONG}"


class Watcher:
    """Looks at an index and counts what it sees: reads, versions, and all that no reader may see."""

    def __init__(self, path, has_own_scan):
        self.path = path
        self.has_own_scan = has_own_scan
        self.stop = threading.Event()
        self.reads = Counter()
        self.versions = set()
        self.faults = {"mixes": [], "missing": [], "errors": []}

    def opened(self, path=None):
        index = mvindex.open(path or self.path)
        if self.has_own_scan:
            search_engine_of(index).use_scan(NumpyScan)  # the others take seconds to load; all of them give the same
        return index

    def run(self, how):
        """Look until stopped, whatever happens, and report each time which version was seen."""
        with self.opened() as index:
            last = self.look(index)
            tell(last)
            while not self.stop.is_set():
                seen = self.guarded(self.once, index, how)
                if seen is None:
                    continue
                if seen < last:
                    self.fault("mixes", f"version {seen} after {last}")
                last = seen
                tell(last)

    def once(self, index, how):
        """The version seen."""
        if how == "reopen":
            with self.opened() as fresh:
                return self.look(fresh)
        if how == "threads":
            return self.look_from_threads(index)
        if how == "copy":
            return self.look_at_a_copy(index)
        if how == "verify":
            self.verified(self.path)
        if how in ("refresh", "verify"):
            index.refresh()
        return self.look(index)

    def look_at_a_copy(self, index):
        """The version of a snapshot, which is sound and whole."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.mvx"
            index.admin.snapshot(copy)
            self.verified(copy)
            with self.opened(copy) as fresh:
                return self.look(fresh)

    def verified(self, path):
        self.reads["verify"] += 1
        for problem in mvindex.verify(path).problems:
            self.fault("errors", f"verify: {problem.file}: {problem.what}")

    def look_from_threads(self, index):
        """The latest version seen. Each thread's every answer is whole, while the index moves on beneath it."""
        threads = [threading.Thread(target=self.guarded, args=(self.call, index)) for _ in range(NUM_THREADS)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.guarded(index.refresh)
            time.sleep(0.001)
        for thread in threads:
            thread.join()
        return max(self.versions)

    def guarded(self, function, *arguments):
        """Return the function's result; where it raises, count an error and return None."""
        try:
            return function(*arguments)
        except Exception as err:  # noqa: BLE001 - no read may raise anything
            self.fault("errors", f"{type(err).__name__}: {err}")

    def call(self, index):
        for _ in range(3):
            self.versions.add(self.searched(index, "search of a thread", top_k=100)[0])
            self.iterated(index)
            self.got(index, CORE[3])

    def look(self, index):
        """The version of the core in this state of the index, in which all calls must agree."""
        seen = [
            self.searched(index, "search", top_k=100),
            self.searched(index, "exact", top_k=_WHOLE, exact=True),
            self.searched(index, "drpq", top_k=100, scoring="drpq"),
            self.iterated(index),
        ]
        if len(set(seen)) > 1:
            self.fault("mixes", f"one state showed core and guests as {seen}")
        core, guests = seen[0]
        self.filtered(index, core, guests)
        if {self.got(index, doc_id) for doc_id in CORE[::7]} != {core}:
            self.fault("mixes", f"get() showed other versions than {core}")
        if {self.got(index, doc_id) for doc_id in GUESTS[::5]} != {guests}:
            self.fault("mixes", f"get() showed other guests than {guests}")
        if len(index) != NUM_CORE + (NUM_GUESTS if guests is not None else 0):
            self.fault("missing", f"len() is {len(index)}")
        if {int(2 * part.score) for part in index.explain(QUERY, CORE[5])} != {2 * core, 2 * core - 1}:
            self.fault("mixes", "explain() showed other views")
        self.versions.add(core)
        return core

    def searched(self, index, name, **asked):
        """The versions of core and guests in a search's hits; None for no guests."""
        self.reads[name] += 1
        result = index.search(QUERY, **asked)
        is_best_view = asked.get("scoring") != "drpq"
        scores = {hit.id: hit.score for hit in result.hits} if is_best_view else {}
        if result.short_by:
            self.fault("missing", f"{name}: short by {result.short_by}")
        return self.of_all(name, result.hits, scores)

    def filtered(self, index, core, guests):
        """Check that a filter finds all of a version or, as tags may have changed since, all or none of a tag."""
        for condition, count in (({"group": "core"}, NUM_CORE), ({"group": "core", "version": core}, NUM_CORE)):
            self.reads["filter"] += 1
            hits = index.search(QUERY, top_k=100, filter=condition).hits
            if len(hits) != count or self.version(f"filter {condition}", hits, {}) != core:
                self.fault("missing", f"{condition}: {len(hits)} hits")
        tag = index.get(CORE[0]).metadata["tag"]
        tagged = index.search(QUERY, top_k=100, filter={"group": "core", "tag": tag}).hits
        if len(tagged) not in (0, NUM_CORE):
            self.fault("mixes", f"tag {tag}: {len(tagged)} hits")

    def iterated(self, index):
        self.reads["iteration"] += 1
        return self.of_all("iteration", list(index), {})

    def got(self, index, doc_id):
        self.reads["get"] += 1
        document = index.get(doc_id)
        return None if document is None else self.version("get", [document], {})

    def of_all(self, name, shown, scores):
        """The versions of core and guests among the documents or hits, which must be all of each."""
        core, guests = ([each for each in shown if each.metadata["group"] == group] for group in ("core", "guest"))
        ids = [each.id for each in shown]
        if sorted(ids) != sorted(CORE + GUESTS if guests else CORE):
            self.fault("missing", f"{name}: {len(set(ids))} documents, {len(core)} of the core, {len(guests)} guests")
        return self.version(name, core, scores), self.version(name, guests, scores)

    def version(self, name, shown, scores):
        """The one version of the documents, by all that they say; None of no documents."""
        said = {each.metadata["version"] for each in shown} | {int(each.title) for each in shown}
        said |= {int(scores[each.id]) for each in shown if each.id in scores}
        if len(said) > 1 or len({each.metadata["tag"] for each in shown}) > 1:
            self.fault("mixes", f"{name}: versions {sorted(said)}, tags {Counter(e.metadata['tag'] for e in shown)}")
        if any(each.text != _text(number) for each in shown for number in said):
            self.fault("mixes", f"{name}: texts of other versions than {sorted(said)}")
        return max(said, default=None)

    def fault(self, kind, what):
        self.faults[kind].append(what)


def tell(what):
    print(json.dumps(what), flush=True)


def main(path, how, *options):
    watcher = Watcher(path, has_own_scan="numpy" in options)
    threading.Thread(target=lambda: (sys.stdin.read(), watcher.stop.set()), daemon=True).start()
    watcher.run(how)
    tell({"reads": watcher.reads, "versions": sorted(watcher.versions), **watcher.faults})


if __name__ == "__main__":
    main(*sys.argv[1:])
