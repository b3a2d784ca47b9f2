"""Fill and build the shards of an index as Ray tasks on one machine, then assemble them and ask a question.

python examples/ray/shards.py corpus.tsv --index corpus.mvx --shards 4 --kind ivf-pq --question "what is a view?"
"""

import argparse
import subprocess
import sys
from pathlib import Path

import ray

import mvindex
from mvindex.index.factory import open_local
from mvindex.ingest.assemble import assemble


@ray.remote
def fill(corpus: str, index: str, shard: str, encoder: str) -> str:
    """Fill one shard and return the command's output; run again after a crash, it continues."""
    command = [sys.executable, "-m", "mvindex", "ingest", corpus, "--index", index, "--shard", shard, "--json"]
    done = subprocess.run([*command, "--encoder", encoder], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"shard {shard}: {done.stderr}")
    return done.stdout.strip()


@ray.remote
def build(index: str, number: int, kind: str) -> int:
    """Build the shard's engine; return its number of documents."""
    with open_local(Path(index), None) as opened:
        return opened.build_shard(number, kind).documents


def main() -> None:
    """Fill the shards in parallel, assemble them, and print the results of a search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--kind", default="ivf-pq", help="exact for no engine")
    parser.add_argument("--question")
    given = parser.parse_args()
    corpus, index = str(given.corpus.resolve()), str(given.index.resolve())

    ray.init()
    for line in ray.get(
        [fill.remote(corpus, index, f"{n}/{given.shards}", given.encoder) for n in range(given.shards)]
    ):
        print(line)
    print(assemble(index))
    if given.kind != "exact":
        with open_local(Path(index), None) as opened:
            opened.train(given.kind)
        print(ray.get([build.remote(index, number, given.kind) for number in range(given.shards)]))
    ray.shutdown()
    if given.question:
        with mvindex.open(index) as opened:
            for hit in opened.search(given.question, top_k=3).hits:
                print(f"{hit.score:.3f}  {hit.id}  {hit.snippet}")


if __name__ == "__main__":
    main()
