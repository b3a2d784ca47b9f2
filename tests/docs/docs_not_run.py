"""The blocks that no test runs, each with the reason; what they say is read all the same (docs_parsing.py)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NotRun:
    """A block, by its page and how it begins, and why it is not run."""

    page: str
    begins: str
    why: str


INSTALLS = "installs from a package registry"
_PEERS, _GRAPH = "OMP_NUM_THREADS=1 python bench/peers.py", "OMP_NUM_THREADS=1 python bench/graph.py --corpus"
BENCH = "measures for minutes or hours, on collections that are no part of the project"
CLUSTER = "needs a Milvus server"
NOT_RUN = [
    NotRun("docs/how-to/gpu.md", "mvindex info --devices", "needs two GPUs"),
    NotRun("docs/how-to/gpu.md", "python bench/gpu_check.py", "needs a GPU"),
    NotRun("README.md", "pip install -c constraints.txt .", INSTALLS),
    NotRun("docs/how-to/install.md", "pip install -c constraints.txt .", INSTALLS),
    NotRun("docs/how-to/install.md", "pip wheel", INSTALLS),
    NotRun("docs/how-to/install.md", "pip uninstall", "removes the package that runs it"),
    NotRun("docs/explanation/benchmarks.md", "python bench/quality.py", BENCH),
    NotRun("docs/explanation/benchmarks.md", "python bench/docs.py", BENCH),
    NotRun("docs/how-to/citations.md", "python bench/citations.py", BENCH),
    NotRun("docs/explanation/confidence.md", "python bench/confidence.py", BENCH),
    NotRun("docs/how-to/files.md", "python bench/sync.py", BENCH),
    NotRun("docs/how-to/grep.md", "python bench/grep.py", "measures for minutes"),
    NotRun("docs/decisions/010-graphs-by-document.md", f"{_GRAPH} gauss", BENCH),
    NotRun("docs/decisions/010-graphs-by-document.md", f"{_GRAPH} seeded", BENCH),
    NotRun("docs/decisions/010-graphs-by-document.md", "OMP_NUM_THREADS=1 python bench/graph_growth.py", BENCH),
    NotRun("docs/explanation/benchmarks.md", "python bench/ingest.py", BENCH),
    NotRun("docs/explanation/benchmarks.md", "python bench/encoding.py --what views", BENCH),
    NotRun("docs/explanation/benchmarks.md", "python bench/encoding.py --what forms", BENCH),
    NotRun("docs/explanation/benchmarks.md", "python bench/search.py", BENCH),
    NotRun("docs/explanation/benchmarks.md", "python bench/drpq.py", BENCH),
    NotRun("docs/explanation/benchmarks.md", "OMP_NUM_THREADS=1 python bench/latency.py", BENCH),
    NotRun("docs/explanation/benchmarks.md", "OMP_NUM_THREADS=1 python bench/start.py --index", BENCH),
    NotRun("docs/explanation/benchmarks.md", "OMP_NUM_THREADS=1 python bench/start.py --exact", BENCH),
    NotRun(
        "docs/how-to/evaluation.md",
        "import mteb",
        "fetches tasks from the internet; tests/evaluation runs one that is local",
    ),
    NotRun("docs/how-to/evaluation.md", "# pip install datasets", "fetches collections from the internet"),
    NotRun(
        "docs/explanation/crosscheck.md",
        "sh bench/crosscheck/run.sh",
        "installs another implementation of MVR from a registry",
    ),
    NotRun(
        "docs/how-to/encoders-of-your-own.md",
        "export OPENAI_API_KEY",
        "needs a paid endpoint; tests/e2e/test_openai_endpoint.py runs the same against a server of that protocol",
    ),
    NotRun("docs/how-to/hybrid.md", "python bench/lexical.py", BENCH),
    NotRun(
        "docs/how-to/hybrid.md",
        'mvindex query "ISO 9660" --hybrid --index grpc',
        "needs the server of docs/how-to/serving.md, where the same is run",
    ),
    NotRun(
        "docs/how-to/hybrid.md",
        "index.search(",
        "loads a cross-encoder of 90 MB from a hub; a small one is in tests/unit/search/test_rerank.py",
    ),
    NotRun(
        "docs/how-to/mcp.md",
        "pip install",
        "installs, and serves until its client ends; tests/agents starts the server",
    ),
    NotRun("docs/how-to/milvus.md", "mvindex ingest corpus.tsv --index milvus://", CLUSTER),
    NotRun("docs/how-to/milvus.md", "mvindex migrate corpus.mvx milvus://", CLUSTER),
    NotRun("docs/how-to/milvus.md", "mvindex import milvus-bulk", CLUSTER),
    NotRun("docs/how-to/milvus.md", "python bench/milvus.py", BENCH),
    NotRun("docs/how-to/milvus.md", "python bench/milvus_hybrid.py", BENCH),
    NotRun("docs/how-to/milvus.md", "python bench/milvus_bulk.py", BENCH),
    NotRun("docs/how-to/milvus.md", "python bench/milvus_kills.py", BENCH),
    NotRun("docs/how-to/milvus.md", "python bench/milvus_migrate.py", BENCH),
    NotRun("docs/how-to/milvus.md", "OMP_NUM_THREADS=1 python bench/milvus_migrate.py", BENCH),
    NotRun("docs/explanation/peers.md", "python bench/peers.py", BENCH),
    NotRun("docs/explanation/peers.md", f"{_PEERS} --documents 100000 --corpus", BENCH),
    NotRun("docs/explanation/peers.md", f"{_PEERS} --documents 12500 --corpus", BENCH),
    NotRun("docs/explanation/peers.md", f"{_PEERS} --documents 12500 --peers", BENCH),
    NotRun("docs/explanation/peers.md", f"{_PEERS} --corpus gauss --documents 12500", BENCH),
    NotRun("docs/explanation/peers.md", f"{_PEERS} --documents 20000", BENCH),
    NotRun("docs/explanation/peers.md", "OMP_NUM_THREADS=1 python bench/latency.py --corpus transplants", BENCH),
    NotRun("docs/explanation/peers.md", "OMP_NUM_THREADS=1 python bench/latency.py --corpus seeded", BENCH),
    NotRun("docs/explanation/peers.md", "python bench/graph.py --corpus seeded", BENCH),
    NotRun("docs/explanation/peers.md", "python bench/graph.py --corpus transplants", BENCH),
    NotRun("docs/how-to/scale.md", "python bench/peers.py", BENCH),
    NotRun("docs/tutorials/an-agent-over-mcp.md", "pip install", INSTALLS),
    NotRun("docs/tutorials/first-index.md", "pip install", INSTALLS),
    NotRun("docs/tutorials/rag-with-langchain.md", "pip install", INSTALLS),
    NotRun("docs/tutorials/serve-it.md", "pip install", INSTALLS),
    NotRun("docs/tutorials/train-on-your-questions.md", "pip install", INSTALLS),
    NotRun("docs/tutorials/use-milvus.md", "pip install", INSTALLS),
    NotRun(
        "docs/how-to/rows.md",
        "mvindex ingest https://",
        "fetches from the internet; tests/unit/corpus has servers here",
    ),
    NotRun("docs/how-to/scale.md", "python bench/scale.py --documents 200000", BENCH),
    NotRun("docs/how-to/scale.md", "OMP_NUM_THREADS=1 python bench/latency.py", BENCH),
    NotRun("docs/how-to/scale.md", "python bench/full_count.py", BENCH),
    NotRun(
        "docs/how-to/scale.md",
        "ray get-auth-token",
        "needs several machines; tests/e2e/test_ray.py has two nodes on one",
    ),
    NotRun("docs/how-to/scale.md", "mvindex migrate corpus.mvx milvus://", CLUSTER),
    NotRun("docs/how-to/scale.md", "python -m tests.helpers.memory_steps", BENCH),
    NotRun("docs/how-to/scale.md", "python bench/scale.py --documents 1250 ", BENCH),
    NotRun("docs/how-to/scale.md", "python bench/scale.py --documents 2067 ", BENCH),
    NotRun("docs/how-to/serving.md", "pip install", INSTALLS),
    NotRun("docs/how-to/serving.md", "grpcurl", "needs grpcurl, which is no package of Python or Debian"),
    NotRun(
        "docs/how-to/serving.md",
        "PYTHONPATH=tests/serving schemathesis",
        "takes minutes; tests/serving/test_http_fuzz.py does it",
    ),
    NotRun("docs/how-to/threads.md", "python bench/encoding.py", BENCH),
    NotRun("docs/how-to/threads.md", "OMP_NUM_THREADS=1 python bench/latency.py", BENCH),
    NotRun("docs/explanation/studies.md", "python bench/studies.py", BENCH),
    NotRun("docs/how-to/training.md", "python bench/encoding.py", BENCH),
    NotRun("docs/how-to/training.md", "python bench/squad_splits.py", BENCH),
    NotRun("docs/how-to/training.md", "python -m mvindex_train.light.e5_base", BENCH),
    NotRun("docs/how-to/training.md", "python bench/training.py --data DATA --out OUT --steps 30 --small\n", BENCH),
    NotRun(
        "docs/how-to/training.md", "python bench/training.py --data DATA --out OUT --steps 30 --small --rows", BENCH
    ),
    NotRun(
        "docs/how-to/training.md", "python bench/training.py --data DATA --out OUT --steps 30 --small --only", BENCH
    ),
]
