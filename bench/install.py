"""Measure what an install takes: seconds, megabytes and packages of each extra, in environments of their own.

    python bench/install.py [--extras base,fast,train] [--with onnxruntime==1.20.1] [--json]
    python bench/install.py --peers zvec,hnswlib

Each line installs this checkout with one extra in a new environment, by constraints.txt; seconds depend on the network
and on pip's cache. In each, two texts are ingested and searched from Python, twice: CPU seconds of the second process,
and its most memory. `--help` is the wall clock of that command, the least of five. --with replaces a package in each
environment, and compares the vectors of the sample corpus with those of this process: the least cosine. --peers shows
megabytes and packages of the environments of bench/peers.py instead, each with its library and NumPy.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
import numpy as np
from peers_parts.environments import PEERS, interpreter

from mvindex.corpus import read_documents
from mvindex.encoder import load_encoder

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("base", "fast", "faiss", "milvus", "server", "files", "reports", "train", "all")
TWO_TEXTS = """
import json, re, resource, sys, mvindex
with mvindex.create(sys.argv[1], encoder="minilm-views", lexical="english") as index:
    texts = ["The cat sat on the mat.", "Oil prices rose in 1973. It rained."]
    index.add([mvindex.Document(str(number), text) for number, text in enumerate(texts, 1)])
    hit = index.search("when did oil cost more?", 1).hits[0]
assert (hit.id, hit.citation.text) == ("2", "Oil prices rose in 1973."), hit
used = resource.getrusage(resource.RUSAGE_SELF)
memory = int(re.search("VmHWM:\\\\s+(\\\\d+)", open("/proc/self/status").read())[1]) / 1e3
print(json.dumps({"cpu_s": used.ru_utime + used.ru_stime, "memory_mb": memory, "torch": "torch" in sys.modules}))
"""
VECTORS = """
import sys, numpy
from mvindex.corpus import read_documents
from mvindex.encoder import load_encoder
documents = list(read_documents(sys.argv[1]))[::40]
numpy.save(sys.argv[2], load_encoder(device="cpu").encode_documents(documents).rows)
"""


def installed(extra, replaced, folder):
    """Return what an environment with the extra takes."""
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = str(folder / "env/bin/python")
    target = str(ROOT) if extra == "base" else f"{ROOT}[{extra}]"
    began = time.perf_counter()
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, target, *([replaced] if replaced else [])], check=True, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    row = {"extra": extra, "install_s": seconds} | size_of(folder / "env")
    for number in range(2):
        command = [python, "-c", TWO_TEXTS, str(folder / f"{number}.mvx")]
        row |= json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout)
    row["help_s"] = min(timed([str(folder / "env/bin/mvindex"), "--help"]) for _ in range(5))
    if replaced:
        row |= {"with": replaced, "least_cosine": least_cosine(python, folder)}
    return row


def size_of(environment):
    """Return 10^6 bytes of an environment without its bytecode, and how many packages it has."""
    files = [file for file in environment.rglob("*") if file.suffix != ".pyc" and not file.is_symlink()]
    packages = environment.glob("lib/*/site-packages/*.dist-info")
    return {"mb": sum(file.stat().st_size for file in files if file.is_file()) / 1e6, "packages": len(list(packages))}


def timed(command):
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def least_cosine(python, folder):
    corpus = str(ROOT / "examples/squad/passages.tsv")
    subprocess.run([python, "-c", VECTORS, corpus, str(folder / "rows.npy")], check=True, cwd=folder)
    own = load_encoder(device="cpu").encode_documents(list(read_documents(corpus))[::40]).rows
    return float((np.load(folder / "rows.npy") * own).sum(axis=1).min())


def shown(row):
    line = (
        f"{row['extra']:8s} {row['install_s']:5.0f} s {row['mb']:6,.0f} MB {row['packages']:4d} packages   two texts "
        f"{row['cpu_s']:.2f} CPU s, {row['memory_mb']:.0f} MB   --help {row['help_s']:.2f} s"
    )
    return line + (f"   {row['with']}: least cosine {row['least_cosine']:.4f}" if "with" in row else "")


def main():
    parser = harness.parser(__doc__, extras=",".join(EXTRAS), json=False)
    parser.add_argument("--with", dest="replaced")
    parser.add_argument("--peers", help="show these of bench/peers.py instead")
    options = harness.parse(parser, extras="base")
    for peer in [each for each in PEERS if each.needs and each.name in (options.peers or "").split(",")]:
        row = {"peer": peer.name} | size_of(Path(interpreter(peer)).parent.parent)
        print(
            json.dumps(row) if options.json else f"{row['peer']:12s} {row['mb']:6,.0f} MB {row['packages']:4d} packages"
        )
    if options.peers:
        return
    for extra in options.extras.split(","):
        with tempfile.TemporaryDirectory() as folder:
            row = installed(extra, options.replaced, Path(folder))
        harness.show(row, options.json, shown)


if __name__ == "__main__":
    main()
