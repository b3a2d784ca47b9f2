"""The peers: what each needs, and a virtual environment for each, made once and kept in build/bench/peers."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from vectors import CACHE

ROOT = Path(__file__).resolve().parents[2]
INSTALL_TIMEOUT_S = 600
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "LANCE_CPU_THREADS")
ONE_THREAD = os.environ | dict.fromkeys(THREADS, "1") | {"LANCE_LOG": "error"}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """name: of its runner, run_NAME.py; variants: what it is built with, a row group each; needs: what pip installs,
    nothing for this project's own environment.
    """  # noqa: D205 - the first sentence takes two lines

    name: str
    variants: tuple[str, ...] = ("default",)
    needs: tuple[str, ...] = ()


PEERS = (
    Peer(name="mvindex", variants=("exact", "graph", "ivf-pq", "hnsw")),
    Peer(name="faiss", variants=("HNSW", "IVF-PQ"), needs=("faiss-cpu>=1.15", "numpy>=2")),
    Peer(name="hnswlib", needs=("hnswlib>=0.8", "numpy>=2")),
    Peer(name="chroma", needs=("chromadb>=1.5", "numpy>=2")),
    Peer(name="zvec", needs=("zvec>=0.8", "numpy>=2")),
    Peer(name="qdrant_edge", variants=("views", "multivector"), needs=("qdrant-edge-py>=0.9", "numpy>=2")),
    Peer(name="usearch", needs=("usearch>=2.26", "numpy>=2")),
    # Under the Intel Simplified Software License (October 2022), which is no open-source one: binaries only.
    Peer(name="svs", variants=("float32", "LVQ4x8"), needs=("scalable-vs>=0.5", "numpy>=2")),
    Peer(name="scann", needs=("scann>=1.4.2",)),
    Peer(name="lancedb", variants=("none", "IVF_PQ", "IVF_SQ"), needs=("lancedb>=0.40", "numpy>=2")),
    Peer(name="milvus", variants=("FLAT", "HNSW"), needs=("pymilvus[milvus-lite]>=3.0.2", "numpy>=2")),
    # Each of its builds wants one torch, and it comes for older ones than the pinned.
    Peer(name="fast_plaid", variants=("4", "8"), needs=("fast-plaid==1.7.0.2110", "torch==2.11.0", "numpy>=2")),
)


class NotRun(Exception):
    """Why a peer has no figures."""


class TooLong(NotRun):
    """A step took longer than it may."""


def called(command, timeout_s, what):
    """Return the output of the command; raise NotRun where it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=ONE_THREAD)
    except subprocess.TimeoutExpired as err:
        raise TooLong(f"{what} took more than {timeout_s} s") from err
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise NotRun(f"{what} failed: {lines[-1] if lines else f'exit status {done.returncode}'}")
    return done.stdout


def interpreter(peer):
    """Return the Python that a peer runs in."""
    if not peer.needs:
        return sys.executable
    folder = CACHE / "peers" / peer.name
    ready, wanted = folder / ".ready", "\n".join(peer.needs)
    python = str(folder / "bin" / "python")
    if not ready.exists() or ready.read_text(encoding="utf-8") != wanted:
        print(f"installing {peer.name}", file=sys.stderr, flush=True)
        called([sys.executable, "-m", "venv", str(folder)], INSTALL_TIMEOUT_S, "making its environment")
        called([python, "-m", "pip", "install", "--quiet", *peer.needs], INSTALL_TIMEOUT_S, "installing it")
        ready.write_text(wanted, encoding="utf-8")
    return python
