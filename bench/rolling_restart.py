"""Restart the read-only servers of one index one by one, under reads, beside a writer that commits all the time.

    python bench/rolling_restart.py --reads 100000

The servers get SIGTERM and are started again in turn, over and over; the clients know all of them by one address. A
read is a search, a document, or all documents of a commit, and is checked: it must not fail, and must be whole. Prints
failed and wrong reads (it exits 1 if there are any), and how long after a commit a server showed it.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path

import tiny
from rich.console import Console
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "serving"))
from rolling import measure, report  # noqa: E402 - the harness of the tests


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=100_000)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--clients", type=int, default=2, help="threads that read, each with a client of its own")
    options = tiny.parse(parser, reads=300, servers=2)
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("reads", total=options.reads)
        tally = measure(options.reads, options.servers, options.clients, partial(progress.advance, task))
    print(json.dumps(report(tally)))
    sys.exit(1 if tally.failed or tally.wrong else 0)


if __name__ == "__main__":
    main()
