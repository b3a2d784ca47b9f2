"""Compare mvindex with its peers on the same vectors: recall of documents, time, bytes; docs/explanation/peers.md.

    python bench/peers.py --documents 12500 --corpus gauss transplants --data DIR [--rows FILE] [--plot FILE] [--json]

Each peer has a virtual environment of its own, made once in build/bench/peers; one that cannot be installed or run is
named as not run, with the reason. All get the same float32 views and questions (the stand-ins of bench/scale.py), are
built, then opened in a fresh process and searched, on one core: single questions (the median of 64, or of all where
there is no batch call), 64 and all 256 in one call. Of a ladder of settings the table shows the step that finds .97 of
the first hundred, or the last; --rows and --plot have all. Recall is of documents against the exact answer (float64);
`short` counts questions with fewer than k distinct documents. Times are the processor's, since a shared machine's clock
says little; x: how many times faster than the first row, mvindex's certified scan. Disk and memory are bytes a
document: memory is private (RssAnon), after the questions, beyond the process with its libraries loaded. A peer whose
building or searching takes longer than --step-timeout is measured in a second table, at --smaller documents.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import harness
from peers_parts.environments import PEERS, NotRun, TooLong, called, interpreter
from peers_parts.export import exported
from peers_parts.plot import plot

PARTS = Path(__file__).resolve().parent / "peers_parts"
# Of a table, by what each is called there; --json has the wall clock's times, versions and more.
COLUMNS = {
    "recall@10": "recall@10",
    "@100": "recall@100",
    "short@10": "short@10",
    "@100 ": "short@100",
    "single@10, ms": "cpu_ms@10",
    "single@100": "cpu_ms@100",
    "of 64@100": "batch64_cpu_ms@100",
    "of 256@100": "batch_cpu_ms@100",
    "x single": "x",
    "x batch": "x_batch",
    "build, s": "build_cpu_s",
    "disk, B": "disk_B_doc",
    "memory, B": "used_B_doc",
}


def measured(peer, variant, data, timeout_s):
    """Return the rows of a variant of a peer: built in a folder that is removed, searched in a process of its own."""
    command = [interpreter(peer), PARTS / "measuring.py", peer.name]
    with tempfile.TemporaryDirectory(dir=data.parent) as work:
        steps = (called([*command, step, data, work, variant], timeout_s, step) for step in ("build", "search"))
        (built,), found = ([json.loads(line) for line in text.splitlines() if line[:1] == "{"] for text in steps)
    return [{"peer": peer.name, "variant": variant} | built | row for row in found]


# What all are compared with.
FIRST = (PEERS[0], PEERS[0].variants[0])
# What a name of --peers stands for.
NAMES = {peer.name: [(peer, variant) for variant in peer.variants] for peer in PEERS}
NAMES |= {f"{peer.name}:{variant}": [(peer, variant)] for peer in PEERS for variant in peer.variants}


class Kept:
    """Rows of a run that is gone on with: read from a file where it is there, added to it variant by variant."""

    def __init__(self, path, collection, timeout_s):
        self._path, self._collection, self._timeout_s, self._rows = path, collection, timeout_s, {}
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else ()
        for row in map(json.loads, lines):
            if collection.items() <= row.items() and row.get("dim") == collection.get("dim"):
                self._rows.setdefault((row["peer"], row["variant"]), []).append(row)

    def rows(self, peer, variant, data):
        """Return the rows of a variant of a peer, measured where they are not stored yet."""
        if (peer.name, variant) in self._rows:
            return self._rows[peer.name, variant]
        rows = [self._collection | row for row in measured(peer, variant, data, self._timeout_s)]
        if self._path:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(row)}\n" for row in rows)
        return rows


def rows_of(data, chosen, kept):
    """Yield the rows of (peer, variant)s on one collection; ratios are to the first, mvindex's certified scan."""
    scan = None
    for peer, variant in chosen:
        try:
            rows = kept.rows(peer, variant, data)
        except NotRun as err:
            is_late = isinstance(err, TooLong)
            yield {"peer": peer.name, "variant": variant, "not_run": str(err), "is_late": is_late}
            continue
        scan = scan or rows[0]
        for row in rows:
            yield row | ratios(row, scan)


def ratios(row, scan):
    """Return how many times faster than the scan a row is, for the first hundred documents."""
    found = {"x": round(scan["cpu_ms@100"] / row["cpu_ms@100"], 2)}
    if "batch_cpu_ms@100" in row:
        found["x_batch"] = round(scan["batch_cpu_ms@100"] / row["batch_cpu_ms@100"], 2)
    return found


def as_line(row):
    cells = [f"{row['peer']} {row['variant']}".removesuffix(" default")]
    if "not_run" in row:
        return f"| {cells[0]} | NOT RUN: {row['not_run']} |" + " |" * len(COLUMNS)
    cells += [row["setting"], *(str(row.get(name, "-")) for name in COLUMNS.values())]
    return f"| {' | '.join(cells)} |"


def main():
    parser = harness.parser(__doc__, documents=12_500, views=8, data=harness.COLLECTIONS, json=False)
    parser.add_argument("--dim", type=int, help="dimensions of the vectors, fewer than they have")
    parser.add_argument(
        "--corpus", nargs="+", choices=["gauss", "transplants", "real"], default=["gauss", "transplants"]
    )
    parser.add_argument(
        "--peers", nargs="+", choices=list(NAMES), metavar="PEER[:VARIANT]", help="beside mvindex:exact; else all"
    )
    parser.add_argument("--step-timeout", type=int, default=3600, help="seconds that a build, or a search, may take")
    parser.add_argument("--smaller", type=int, default=20_000, help="documents for peers that take longer")
    parser.add_argument("--rows", type=Path, help="file of rows as JSON: those in it are not measured again")
    parser.add_argument("--plot", type=Path, help="recall against time (PNG, SVG or PDF; needs matplotlib)")
    options = harness.parse(
        parser, documents=160, corpus=["gauss"], peers=["mvindex:ivf-pq"], data=harness.DATA, step_timeout=120
    )
    chosen = [each for name in options.peers or [peer.name for peer in PEERS] for each in NAMES[name]]
    if chosen[0] != FIRST:
        chosen = [FIRST, *(each for each in chosen if each != FIRST)]
    rows = []
    for corpus in options.corpus:
        rows += table(corpus, options.documents, chosen, options)
        late = {(row["peer"], row["variant"]) for row in rows if row.get("is_late") and row["corpus"] == corpus}
        if late and options.smaller < options.documents:
            # With the row that all are compared with.
            again = [each for each in chosen if each == FIRST or (each[0].name, each[1]) in late]
            rows += table(corpus, options.smaller, again, options)
    if options.plot:
        plot([row for row in rows if "not_run" not in row], options.plot)


def table(corpus, documents, chosen, options):
    """Print the rows of (peer, variant)s, and return them."""
    data = exported(corpus, documents, options.views, options.data, options.dim)
    if not options.json:
        print(f"\n## {corpus}, {documents:,} documents of {options.views} views\n")
        print(f"| peer | setting | {' | '.join(COLUMNS)} |\n|{' --- |' * (len(COLUMNS) + 2)}", flush=True)
    collection = {"corpus": corpus, "documents": documents, "views": options.views}
    collection |= {} if options.dim is None else {"dim": options.dim}
    rows = []
    for row in rows_of(data, chosen, Kept(options.rows, collection, options.step_timeout)):
        if options.json:
            print(json.dumps(row), flush=True)
        elif row.get("is_last", True):
            print(as_line(row), flush=True)
        print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        rows.append(collection | row)
    return rows


if __name__ == "__main__":
    main()
