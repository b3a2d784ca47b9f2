"""The sentences of mvindex info."""

import json
from dataclasses import replace

import pytest

from mvindex import engines
from mvindex.cli.documents import _said_of_devices, _summary
from mvindex.engines.auto import kinds_on_gpus
from tests.helpers.cli import mvindex, ok


@pytest.mark.parametrize(
    "kind, command", [("graph", "compact"), ("grows", "compact"), ("fixed", "build"), ("not-installed", "build")]
)
def test_new_documents_are_added_by_the_command_that_suits_the_kind(monkeypatch, kind, command):
    graph = engines.find_kind("graph")
    kinds = {"grows": replace(graph, name="grows"), "fixed": replace(graph, name="fixed", extends=False)}
    monkeypatch.setattr(engines, "_REGISTERED", kinds)
    row = {"documents": 1200, "views": 1200, "dim": 2, "server": "grpc://a", "encoder": None, "lexical": None}
    row |= {"kind": kind, "missing_shards": (), "fresh_documents": 1000, "num_deleted": 0}
    assert _summary(row)[-1] == f"1,000 documents are newer than the engine: mvindex {command} adds them to it."


def test_devices_are_shown_without_an_index_or_the_reason_that_there_are_none(tmp_path):
    torch = pytest.importorskip("torch")
    found = json.loads(ok(mvindex("info", "--devices", "--json", cwd=tmp_path)).stdout)
    assert found["packages"]["torch"] == torch.__version__
    assert [gpu["device"] for gpu in found["gpus"]] == [f"cuda:{n}" for n in range(torch.cuda.device_count())]
    assert (found["why_no_gpu"] is None) is torch.cuda.is_available()
    assert bool(found["faiss_kinds_on_gpus"]) is any(name.startswith("faiss-gpu") for name in found["packages"])
    shown = ok(mvindex("info", "--devices", cwd=tmp_path)).stdout
    assert shown.startswith("cuda:0: " if torch.cuda.is_available() else "No GPU: ")
    assert "expected one of --index and --devices" in mvindex("info", "--devices", "--index", "a", cwd=tmp_path).stderr
    ok(mvindex("info", "--devices", cwd=tmp_path, env={"MVINDEX_INDEX": "a"}))


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("faiss-cpu", "Faiss: all kinds are searched on the CPU; for some on GPUs: pip install"),
        ("faiss-gpu", "Faiss: hnsw and ivf-pq are searched on the CPU; the package faiss-gpu-cuvs has them."),
        ("faiss-gpu-cuvs", None),
    ],
)
def test_beside_a_gpu_stands_what_faiss_leaves_to_the_cpu(package, said):
    gpu = {"device": "cuda:0", "name": "A", "free_bytes": 1 << 30, "memory_bytes": 2 << 30}
    found = _said_of_devices({"gpus": [gpu], "faiss_kinds_on_gpus": sorted(kinds_on_gpus([package]))})
    assert found[0] == "cuda:0: A, 1.0 GiB of 2.0 GiB free."
    assert len(found) == 1 if said is None else found[1].startswith(said)
