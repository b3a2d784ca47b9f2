"""Kill a writing client, and the server, N rounds each, with a check after each.

    python bench/milvus_kills.py --rounds 50 --seed 1 [--only lite client server] [--json]

Exits 1 at the first fault, with the round that shows it. The short form is tests/milvus/test_kills.py.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import harness
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.durability.kills.milvus import Rounds  # noqa: E402 - after the path
from tests.milvus.milvus_server import MilvusServer  # noqa: E402 - after the path


def run(name, rounds, count):
    """Run so many rounds; return a row."""
    started = time.monotonic()
    for number in range(count):
        rounds.run()
        print(f"{name}: round {number + 1} of {count}, {rounds.acknowledged + 1} batches", file=sys.stderr, flush=True)
    dropped = rounds.finish()
    return {
        "what": name,
        "rounds": count,
        "batches": rounds.acknowledged + 1,
        "views_left_over": dropped,
        "faults": 0,
        "seconds": round(time.monotonic() - started, 1),
    }


def main():
    parser = harness.parser(__doc__, rounds=50, seed=1, json=False)
    parser.add_argument("--only", nargs="*", default=["lite", "client", "server"])
    options = harness.parse(parser, rounds=1, only=["lite"])
    found = []
    with tempfile.TemporaryDirectory(prefix="milvus-kills-") as folder:
        if "lite" in options.only:
            rounds = Rounds(f"milvus-lite:{folder}/x.db", np.random.default_rng(options.seed))
            found.append(run("client of Lite", rounds, options.rounds))
        if {"client", "server"} & set(options.only):
            data = Path(folder) / "server"
            data.mkdir()
            with MilvusServer(data) as server:
                for name in ("client", "server"):
                    if name in options.only:
                        with server.collection("?timeout=120") as place:
                            killed = server if name == "server" else None
                            rounds = Rounds(place, np.random.default_rng(options.seed), killed)
                            found.append(run(name, rounds, options.rounds))
    for row in found:
        print(json.dumps(row) if options.json else row)


if __name__ == "__main__":
    main()
