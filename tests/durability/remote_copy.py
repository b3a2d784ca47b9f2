"""A process that copies a snapshot to or from an address, and ends itself or runs short of memory.

    python -m tests.durability.remote_copy snapshot|restore SOURCE TARGET [--kill-at STEP] [--room BYTES]

Prints its number of steps and its outcome as JSON. A step is a file that was copied, or what mvindex makes durable
(mvindex/durable.py).
"""

import argparse
import json
import os
import resource
import signal
import sys

import mvindex
from mvindex.durable import EVENT
from mvindex.errors import MvindexError


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["snapshot", "restore"])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--kill-at", type=int)
    parser.add_argument("--room", type=int, help="bytes of address space beyond those in use")
    options = parser.parse_args()
    steps = 0

    def step(*_):
        nonlocal steps
        steps += 1
        if steps == options.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(lambda event, _: step() if event == EVENT else None)
    if options.room is not None:
        limit(options.source, options.target, options.room)
    try:
        if options.what == "restore":
            report = mvindex.restore(options.source, options.target, step)
        else:
            with mvindex.open(options.source) as index:
                report = index.admin.snapshot(options.target, step)
        outcome = {"documents": report.documents}
    except (MvindexError, MemoryError) as err:
        outcome = {"error": type(err).__name__, "message": str(err)}
    print(json.dumps({"steps": steps, **outcome}))


def limit(source, target, room):
    """Limit the address space, once what a restore needs is loaded."""
    try:
        mvindex.restore(f"{source}-that-is-not-there", target)
    except MvindexError:
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))


if __name__ == "__main__":
    main()
