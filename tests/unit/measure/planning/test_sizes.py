"""Planned sizes of engines against built ones: their files, and the memory of a process."""

import json
import subprocess
import sys

import numpy as np
import pytest

import mvindex
from mvindex import kernels
from mvindex.engines.protocol import EXACT
from mvindex.index import embedded_store_of
from mvindex.measure.planning.layouts import KINDS
from mvindex.measure.planning.sizes import engine_bytes, scan_bytes, store_bytes
from mvindex.store.views import ViewType
from tests.helpers.marks import long
from tests.helpers.planning_examples import collection

FAISS_KINDS = [kind for kind in KINDS if kind != EXACT]


def make_index(path, num_views, dim, per_document=8):
    """Views about a few hundred places, so that lists differ in length."""
    rng = np.random.default_rng(3)
    places = rng.standard_normal((256, dim), dtype=np.float32)
    with mvindex.create(path, dim=dim) as index:
        for begin in range(0, num_views // per_document, 4096):
            count = min(4096, num_views // per_document - begin)
            near = places[rng.zipf(1.5, (count, 1)) % len(places)]
            views = near + rng.standard_normal((count, per_document, dim), dtype=np.float32)
            index.add_views([mvindex.Document(str(begin + row), "t" * 600) for row in range(count)], views)
    return path


def build(path, kind, nlist=None):
    """Build an engine; return the report and nlist."""
    with mvindex.open(path) as index:
        report = index.admin.build(kind, nlist=nlist)
        settings = embedded_store_of(index).snapshot.settings["engine"]["settings"]
        return report, settings.get("parameters", {}).get("nlist", 0)


# As many views of other odd dimensions are of the long form.
SMALL = [(20_000, 33), (12_000, 96), long((20_000, 32)), long((20_000, 50))]


@pytest.fixture(scope="module", params=SMALL, ids=str)
def small(request, tmp_path_factory):
    num_views, dim = request.param
    return make_index(tmp_path_factory.mktemp("sizes") / "x.mvx", num_views, dim), num_views, dim


@pytest.mark.parametrize(
    ("kind", "nlist"),
    [(kind, nlist) for kind in FAISS_KINDS for nlist in ((None, 200) if kind.startswith("ivf-") else (None,))],
)
def test_the_files_of_an_engine_are_as_large_as_planned(small, tmp_path, kind, nlist):
    path, num_views, dim = small
    if kind in ("graph", "hnsw"):  # links take long to make, and their size is that of each view
        num_views = 4000
        path = make_index(tmp_path / "x.mvx", num_views, dim)
    report, built_lists = build(path, kind, nlist)
    assert report.engine_bytes == pytest.approx(
        engine_bytes(kind, collection(documents=num_views, views=1, dim=dim), built_lists).disk, rel=0.02
    )


def test_the_files_of_a_store_are_as_large_as_planned(small):
    path, num_views, dim = small
    held = collection(documents=num_views // 8, dim=dim)
    planned, files = store_bytes(held), {file.name: file.stat().st_size for file in path.rglob("*") if file.is_file()}
    assert sum(size for name, size in files.items() if name.startswith("views-")) == planned.views
    assert sum(size for name, size in files.items() if name.startswith("rows-")) == planned.rows
    assert files["catalog.sqlite"] == pytest.approx(planned.catalog, rel=0.05)


def test_a_document_takes_nine_bytes_of_memory_beside_a_trifle_for_checksums():
    # 8 B where its views start, 1 B whether it is alive; 9 B for each MiB of 21M x 8 x 768 x 2 B: 0.1 B a document.
    planned = store_bytes(collection(documents=21_000_000, dim=768))
    assert 9.0 < planned.resident / 21_000_000 < 9.2


def test_sizes_by_hand():
    # ivf-pq at 768 dims: 192 B of code and 8 B of number; 131,072 lists waste 15.5 rows of code each. Centroids are
    # 3,072 B, their numbers and places 16 B; 1,024 groups have a centroid of 3,072 B and lengths of 16 B each. The
    # rotation is 768 x 768 x 4, the table 16 x 768 x 4, a list's lengths 16.
    rows = 168_122_592
    by_hand = rows * 200 + 131_072 * (15.5 * 192 + 3072 + 16 + 16) + 1024 * 3088 + 768 * 768 * 4 + 16 * 768 * 4
    whole = collection(documents=rows, views=1, dim=768)
    assert engine_bytes("ivf-pq", whole, 131_072).disk == pytest.approx(by_hand, rel=1e-6)
    # Of less than 16,384 lists all centroids are compared.
    few = collection(documents=1000, views=1, dim=4)
    assert engine_bytes("ivf-flat", few, 10).disk == 1000 * (16 + 8) + 10 * (16 + 16)
    assert engine_bytes("flat", few, 0).disk == 16_000


@pytest.mark.parametrize("dtype", ViewType)
def test_views_take_two_or_four_bytes_a_dimension(dtype):
    assert store_bytes(collection(documents=10, views=3, dim=5, view_type=dtype)).views == 10 * 3 * 5 * (
        2 if dtype is ViewType.FP16 else 4
    )


def test_a_shard_holds_whole_documents():
    held = collection(documents=10, views=2.5)
    assert held.num_views == 25
    assert held.shard(3).documents == 4 and held.shard(3).num_views == 10


@pytest.mark.needs("vnni")
@pytest.mark.parametrize("dim", [30, 64, 100, 192, 200, 768])
def test_the_copies_of_the_native_scan_are_as_large_as_planned(tmp_path, dim, monkeypatch):
    monkeypatch.setattr(kernels, "WORTH_LOADING", 0)
    with mvindex.open(make_index(tmp_path / "x.mvx", 40_000, dim)) as index:
        size = index.admin.build("exact").engine_bytes
    planned = scan_bytes("native int8 (AVX-512 VNNI)", collection(documents=5000, dim=dim))
    assert planned == pytest.approx(size, rel=0.01)


@pytest.mark.parametrize(("scan", "width"), [("torch fp32", 4), ("torch fp32 on cuda", 4), ("torch fp16 on cuda", 2)])
def test_torch_keeps_copies_and_the_row_and_norm_of_a_document(scan, width):
    assert scan_bytes(scan, collection(documents=10, views=2, dim=16)) == 10 * 2 * 16 * width + 10 * (8 + 4)


def test_numpy_keeps_no_copies():
    assert scan_bytes("numpy fp32", collection()) == 0


CHILD = '''
import json, sys
from pathlib import Path
import faiss, numpy as np
import mvindex
from mvindex import engines
from mvindex.index import embedded_store_of

def resident():
    """Private bytes, and those of files that are mapped."""
    with open("/proc/self/status") as file:
        found = dict(line.split(":") for line in file)
    return [1024 * int(found[name].split()[0]) for name in ("RssAnon", "RssFile")]

with mvindex.open(sys.argv[1]) as index:
    snapshot = embedded_store_of(index).snapshot
    record, directory = snapshot.settings["engine"], snapshot.directory
queries = np.random.default_rng(0).standard_normal((1, int(sys.argv[2]))).astype(np.float32)
# What Faiss and BLAS take for themselves at the first search is no engine's.
other = faiss.IndexFlatIP(queries.shape[1])
other.add(np.ones((4096, queries.shape[1]), dtype=np.float32))
other.search(np.repeat(queries, 64, axis=0), 10)
# Neither is what is imported, and compiled where no run before has done so.
kind = engines.find_kind(record["kind"])
before = resident()
engine = kind.open(directory / record["directory"], record["settings"], None)
engine.with_search({"nprobe": 1, "k_factor": 4, "ef": 1}).search(queries, 10, None)
print(json.dumps([now - was for now, was in zip(resident(), before)]))
'''
# Code of libraries that is first run, and so first read, at a search of an engine of the kind.
CODE_BYTES = 4 << 20


@pytest.mark.full
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NOT RUN: needs /proc")
@pytest.mark.parametrize(
    ("kind", "num_views", "dim"),
    [
        ("flat", 12_000, 384),
        ("hnsw", 10_000, 384),
        ("ivf-flat", 12_000, 384),
        ("ivf-sq8", 45_000, 384),
        long("ivf-pq", 240_000, 192),
        long("ivf-rabitq", 240_000, 384),
    ],
)
def test_the_memory_of_an_open_engine_is_as_planned(tmp_path, kind, num_views, dim):
    path = make_index(tmp_path / "x.mvx", num_views, dim, per_document=40)
    _, nlist = build(path, kind)
    command = [sys.executable, "-c", CHILD, str(path), str(dim)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    planned = engine_bytes(kind, collection(documents=num_views, views=1, dim=dim), nlist).resident
    private, mapped = json.loads(done.stdout)
    assert planned >= 15 << 20
    assert private == pytest.approx(planned, rel=0.05)
    assert mapped < CODE_BYTES
