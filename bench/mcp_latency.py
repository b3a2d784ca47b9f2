"""Measure what the Model Context Protocol adds to a search: the tool over stdio and HTTP beside the index itself.

    python bench/mcp_latency.py [--queries 200] [--documents 2067] [--json]

The index is of passages of the sample corpus, made by the default encoder. Each side answers the same questions one by
one, in turns of 20; milliseconds of a call, with encoding, at the median and the 95th percentile.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import harness
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from mcp import Client, StdioServerParameters  # noqa: E402

import mvindex  # noqa: E402
from mvindex.corpus import CorpusOptions, read_documents  # noqa: E402
from mvindex.measure.questions import read_questions  # noqa: E402
from tests.agents.mcp_serving import command, listening  # noqa: E402

TURN = 20


async def measured(index, url, stdio, queries):
    times = {"index": [], "stdio": [], "http": []}
    async with Client(stdio) as by_stdio, Client(url) as by_http:
        clients = {"stdio": by_stdio, "http": by_http}
        for begin in range(0, len(queries), TURN):
            for side, found in times.items():
                for query in queries[begin : begin + TURN]:
                    since = time.perf_counter()
                    if side == "index":
                        index.search(query, 5)
                    else:
                        result = await clients[side].call_tool("search", {"query": query, "top_k": 5})
                        assert not result.is_error, result.content
                    found.append(1000 * (time.perf_counter() - since))
    # The first turn loads what searches need.
    return {side: np.percentile(found[TURN:], [50, 95]).tolist() for side, found in times.items()}


def main():
    parser = harness.parser(__doc__, queries=200, json=False, documents=2067)
    options = harness.parse(parser, queries=2 * TURN, documents=20)
    sample = ROOT / "examples/squad"
    queries = [one.text for one in read_questions([str(sample / "one_passage_three_views.tsv")])]
    queries = (queries * options.queries)[: options.queries]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "docs.mvx"
        with mvindex.create(path, encoder="minilm-views") as index:
            index.add(islice(read_documents(str(sample / "passages.tsv"), CorpusOptions()), options.documents))
            first, *rest = command(path)
            stdio = StdioServerParameters(command=first, args=rest, env=dict(os.environ))
            with listening(path) as url:
                found = asyncio.run(measured(index, url, stdio, queries))
    if options.json:
        print(json.dumps(found))
        return
    for side, (middle, late) in found.items():
        print(f"{side:6} {middle:7.2f} ms at the median, {late:7.2f} ms at the 95th percentile")


if __name__ == "__main__":
    main()
