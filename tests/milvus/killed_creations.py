"""Migrate to targets of Milvus, each time killed by SIGKILL before another call that changes something there.

killed_creations.py SOURCE FIRST LAST TARGET: TARGET has {} for the number of the call, from FIRST to LAST.
"""

import os
import signal
import sys

from pymilvus import MilvusClient

from mvindex.io.migrate import migrate

CHANGES = ("create_collection", "create_index", "load_collection", "upsert", "drop_collection", "delete")


def die_before(number):
    """Kill this process before its call of this number, from 1 on, that changes something in Milvus."""
    calls = iter(range(1, 1_000))

    def counted(original):
        def call(*args, **options):
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **options)

        return call

    for name in CHANGES:
        setattr(MilvusClient, name, counted(getattr(MilvusClient, name)))


def main():
    source, first, last, target = sys.argv[1:]
    for number in range(int(first), int(last) + 1):
        child = os.fork()
        if child == 0:
            die_before(number)
            migrate(source, target.format(number))
            os._exit(0)
        if os.WTERMSIG(os.waitpid(child, 0)[1]) != signal.SIGKILL:
            sys.exit(f"call {number}: expected a kill, got none")


if __name__ == "__main__":
    main()
