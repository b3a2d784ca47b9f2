"""Measure the stores of LangChain, LlamaIndex and Haystack.

    python bench/frameworks.py --json --out build/bench/frameworks.json        # half a minute
    python bench/frameworks.py --server                                        # and behind a server on this machine
    python bench/frameworks.py --peers                                         # beside Chroma and LanceDB, 3 minutes

Without --peers: what each store adds to a query of the bare index. All sides have the same vectors, one per document,
in a directory. Each query runs on every side before the next one, so that other load on the machine affects all alike.
"terse" is without every view's score (has_view_scores=False). The extras langchain, llamaindex and haystack are needed;
--server, which searches LangChain's store and the bare index by gRPC, needs server and client too.

With --peers: LangChain's stores over mvindex, Chroma and LanceDB, each in processes of its own, with the same texts,
ids, metadata and embedding function: time to add, to open, and to search with and without a filter. Sides take turns.
A peer is measured where it is installed (pip install langchain-chroma langchain-community lancedb). "mvindex" is the
default store: up to 8 views a text, hybrid search and citations, none of which the peers have. "mvindex, dense" has one
vector a text and no citations, as they do. --embedding hash costs next to nothing; minilm is all-MiniLM-L6-v2.
"""

import argparse
import json
import sys
from pathlib import Path

import tiny


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, help="By default 10,000, and 2,000 with --peers.")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--top-k", type=int, default=10)
    parser.add_argument("--server", action="store_true", help="Also on a server.")
    parser.add_argument("--peers", action="store_true", help="LangChain's stores beside Chroma and LanceDB.")
    parser.add_argument("--embedding", choices=("hash", "minilm"), default="hash", help="With --peers.")
    parser.add_argument("--repeats", type=int, default=3, help="With --peers: indexes of each side.")
    parser.add_argument("--json", action="store_true", help="Print the figures as JSON.")
    parser.add_argument("--out", type=Path)
    options = tiny.parse(parser, documents=60, dim=8, queries=4, top_k=3, repeats=1)
    if options.documents is None:
        options.documents = 2000 if options.peers else 10_000
    return options


def main():
    options = parse_options()
    if options.peers:
        from frameworks_parts.langchain_peers import measure_peers as measure
        from frameworks_parts.langchain_peers import print_peers as print_sides

        shown = ("documents", "queries", "embedding", "repeats")
    else:
        from frameworks_parts.overhead import measure_overhead as measure
        from frameworks_parts.overhead import print_overhead as print_sides

        shown = ("documents", "dim", "queries", "top_k")
    report = {"options": {name: vars(options)[name] for name in shown}, "sides": measure(options)}
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    if options.json:
        sys.stdout.write(json.dumps(report) + "\n")
        return
    print_sides(report["sides"])


if __name__ == "__main__":
    main()
