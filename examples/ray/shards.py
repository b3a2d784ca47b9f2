"""Fill and build the shards of an index as Ray tasks, then assemble them and ask a question.

Ray runs a task again whose worker or machine died. An ingest goes on behind the last chunk that was committed, so that
each chunk is stored exactly once. RAY_ADDRESS names a cluster; without it, one is started on this machine. The corpus
and the index must lie on a disk that all its machines see under one path and that can be locked (no NFS).

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


def run(*arguments: str) -> str:
    """Run a command of mvindex in this process, and return its output."""
    output, errors = io.StringIO(), io.StringIO()
    sys.argv = ["mvindex", *arguments]
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            run_command()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"mvindex {' '.join(arguments)}: {errors.getvalue()}") from None
    return output.getvalue().strip()


# In the worker itself, which holds the lock of its shard: nothing goes on without a worker that was killed.
run_in_worker = ray.remote(max_retries=-1)(run)


def main() -> None:
    """Fill the shards in parallel, assemble them, and print the results of a search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    parser.add_argument("--index", required=True)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--encoder", default="minilm-views")
    parser.add_argument("--kind", default="ivf-pq", help="exact for no engine")
    parser.add_argument("--question")
    parser.add_argument("--workers", type=int, help="of the cluster that is started; by default one for each core")
    given = parser.parse_args()
    # A worker has a working directory of its own.
    corpus, index = (str(Path(path).absolute()) for path in (given.corpus, given.index))
    encoder = str(Path(given.encoder).absolute()) if Path(given.encoder).exists() else given.encoder
    numbers, build = range(given.shards), ["build", "--index", index, "--kind", given.kind, "--json"]

    ray.init(num_cpus=given.workers)
    ingest = ["ingest", corpus, "--index", index, "--encoder", encoder, "--json"]
    tasks = [run_in_worker.remote(*ingest, "--shard", f"{number}/{given.shards}") for number in numbers]
    print("\n".join(ray.get(tasks)))
    print(run("assemble", index, "--json"))
    if given.kind != "exact":
        print(run(*build, "--train-only"))
        print("\n".join(ray.get([run_in_worker.remote(*build, "--shard", str(number)) for number in numbers])))
    ray.shutdown()
    if given.question:
        with mvindex.open(index) as opened:
            for hit in opened.search(given.question, top_k=3).hits:
                print(f"{hit.score:.3f}  {hit.id}  {hit.snippet}")


if __name__ == "__main__":
    main()
