"""Run packages, and an index from its creation to its searches, on processors that QEMU emulates.

    python bench/processors.py                          # some ten minutes on two free cores
    python bench/processors.py --cpu Nehalem --long     # with numba's loops: a graph, compiled under emulation

Needs QEMU's user emulation (Debian's qemu-user). A cell of the first table is "yes", or the end of the process. The
second one has the CPU seconds of each step, of which QEMU takes some ten to twenty for one of this machine's.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import harness
from harness import print_table

CPUS = ["qemu64", "Nehalem", "SandyBridge", "Haswell"]
PACKAGES = [
    "numpy",
    "onnxruntime",
    "tokenizers",
    "msgspec",
    "zstandard",
    "xxhash",
    "numba",
    "faiss",
    "pyarrow",
    "scipy",
]
PACKAGES += ["torch", "grpc", "orjson", "pydantic", "pypdfium2", "markitdown", "pymilvus", "milvus_lite", "mvindex"]
STEPS = """
import json, sys, time
before = time.process_time()
def done(step):
    global before
    now = time.process_time()
    print(json.dumps([step, round(now - before, 1)]), flush=True)
    before = time.process_time()
import mvindex
done("import mvindex")
with mvindex.create(sys.argv[1], encoder="minilm-views") as index:
    done("create, load the encoder")
    index.add([mvindex.Document(f"d{n}", f"In {1900 + n} the price of oil rose to ${n}.") for n in range(20)])
    done("add 20 documents")
    for options in ({"mode": "hybrid"}, {"mode": "lexical"}, {"mode": "dense", "exact": True}, {"scoring": "drpq"}):
        assert index.search("what was the price of oil in 1907?", 5, **options).hits
        done("search " + " ".join(map(str, options.values())))
    for kind in sys.argv[2:]:
        index.admin.build(kind)
        done(f"build {kind}")
        assert index.search("what was the price of oil in 1907?", 5, mode="dense").hits
        done(f"search {kind}")
"""


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--cpu", action="append", help=f"of `qemu-x86_64 -cpu help`; by default {', '.join(CPUS)}")
    parser.add_argument("--package", action="append", help="to import; by default those that mvindex may load")
    parser.add_argument("--kind", action="append", help="to build, beside the scan; hnsw by default")
    parser.add_argument("--long", action="store_true", help="build a graph as well, whose loops numba compiles")
    options = harness.parse(parser, cpu=["Nehalem"], package=["numpy"], kind=[])
    cpus, packages = options.cpu or CPUS, options.package or PACKAGES
    kinds = (["hnsw"] if options.kind is None else options.kind) + (["graph"] if options.long else [])
    imports = {cpu: {name: end_of(run(cpu, f"import {name}")) for name in packages} for cpu in cpus}
    print_table(
        ["package", *cpus], [{"package": name} | {cpu: imports[cpu][name] for cpu in cpus} for name in packages]
    )
    steps = {cpu: steps_of(cpu, kinds) for cpu in cpus}
    names = list(dict.fromkeys(name for of_cpu in steps.values() for name in of_cpu))
    print()
    print_table(["step", *cpus], [{"step": name} | {cpu: steps[cpu].get(name, "-") for cpu in cpus} for name in names])


def run(cpu, code, *arguments):
    """Run code on an emulated processor."""
    # A processor that another variable of the machine names is not the emulated one.
    variables = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    # QEMU runs the program, not a launcher of a virtual environment.
    variables |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
    command = ["qemu-x86_64", "-cpu", cpu, str(Path(sys.executable).resolve()), "-c", code, *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def end_of(done):
    """Return how a process ended, in a few words."""
    if done.returncode == 0:
        return "yes"
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    return "refused" if "ImportError: mvindex: " in done.stderr else done.stderr.strip().splitlines()[-1][:60]


def steps_of(cpu, kinds):
    """Return the seconds of each step, and how the process ended where it did not do all of them."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(cpu, STEPS, str(Path(folder) / "a.mvx"), *kinds)
    seconds = dict(map(json.loads, done.stdout.splitlines()))
    return seconds if done.returncode == 0 else seconds | {"end": end_of(done)}


if __name__ == "__main__":
    main()
