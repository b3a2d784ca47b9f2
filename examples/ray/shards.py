"""Fill and build the shards of an index as Ray tasks, then assemble them and ask a question.

Ray runs a task again whose worker died. It goes on behind the last chunk that was committed, so that each chunk is
stored exactly once. The index must lie on a disk that all workers see, and that can be locked (no NFS).

python examples/ray/shards.py corpus.tsv --index corpus.mvx --shards 4 --kind ivf-pq --question "what is a view?"
"""

import argparse
import contextlib
import io
import sys
from pathlib import Path

import ray

import mvindex
from mvindex.cli import main as run_command
from mvindex.errors import IndexLocked
from mvindex.index.factory import open_local
from mvindex.ingest.assemble import assemble


# In the worker itself, so that nothing goes on without it; of two that fill a shard one waits for its turn.
@ray.remote(max_retries=-1, retry_exceptions=[IndexLocked])
def fill(corpus: str, index: str, shard: str, encoder: str) -> str:
    """Fill one shard and return the command's output; run again after a crash, it continues."""
    sys.argv = ["mvindex", "ingest", corpus, "--index", index, "--shard", shard, "--encoder", encoder, "--json"]
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            run_command()
        except SystemExit as end:
            if end.code:
                kind = IndexLocked if "writer" in errors.getvalue() else RuntimeError
                raise kind(f"shard {shard}: {errors.getvalue()}") from None
    return output.getvalue().strip()


@ray.remote(max_retries=-1)
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
    parser.add_argument("--workers", type=int, help="of a cluster on this machine; by default one for each core")
    given = parser.parse_args()
    corpus, index = str(given.corpus.resolve()), str(given.index.resolve())

    ray.init(num_cpus=given.workers)
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
