"""A kind of engine from outside of mvindex, from registration to an opened index; and the choice of a scan."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import mvindex
from mvindex import engines
from mvindex.engines.protocol import BuildOptions, EngineCapabilities, EngineKind, Parameter, ViewBytes, flat_error
from mvindex.engines.scan_torch import TorchScan
from mvindex.errors import ConfigError, EngineMissing
from mvindex.index import embedded_store_of
from mvindex.kernels import has_int8_products
from mvindex.kernels.score import decode
from mvindex.records import Document
from mvindex.store.embedded import EmbeddedStore
from mvindex.testing import EngineContract, assert_same, brute_force, unit

FILE = "views.npy"


class ToyRanking:
    """Brute force over views in an .npy file: all that a RankingEngine needs."""

    def __init__(self, views, settings):
        self._views, self._settings = views, settings
        self._largest = float(np.linalg.norm(views, axis=1).max())
        self.num_rows = int(settings["built_rows"])
        self.capabilities = EngineCapabilities(is_exact=True)
        self.search_settings = dict(settings.get("search") or {})

    def choices(self):
        return []

    def with_search(self, search):
        return ToyRanking(self._views, {**self._settings, "search": dict(search)})

    def search(self, queries, limit, allowed_views, turn=0):
        scores = queries @ self._views.T
        if allowed_views is not None:
            scores = np.where(allowed_views, scores, -np.inf)
        rows = np.argsort(-scores, axis=1, kind="stable")[:, :limit]
        scores = np.take_along_axis(scores, rows, axis=1)
        return scores, np.where(np.isfinite(scores), rows, -1)

    def error(self, queries):
        return flat_error(queries, self._largest)


def build(snapshot, directory, options):
    packed, _ = snapshot.views.read_block(0, snapshot.num_rows)
    np.save(directory / FILE, decode(packed))
    options.on_progress("copying", len(packed), len(packed))
    return {"num_views": len(packed), "parameters": {"size": 4, **options.parameters}}


def open_toy(directory, settings, device):
    return ToyRanking(np.load(directory / FILE), settings)


TOY = EngineKind(
    name="toy",
    help="Brute force over a copy of the views.",
    build=build,
    open=open_toy,
    parameters=(Parameter(name="size", help="Means nothing.", default=4, least=2, most=9),),
    view_bytes=lambda dim: ViewBytes(code=4 * dim),
)


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(engines, "_REGISTERED", {})
    engines.register_engine(TOY)


@pytest.fixture
def filled(tmp_path):
    rng = np.random.default_rng(1)
    views = {f"d{n}": unit(rng.standard_normal((3, 8))) for n in range(50)}
    with mvindex.create(tmp_path / "x.mvx", dim=8) as index:
        index.add_views([Document(doc_id, "") for doc_id in views], list(views.values()))
        yield index, views


@pytest.mark.usefixtures("toy")
class TestToyEngine(EngineContract):
    def build(self, views, tmp_path):
        with mvindex.create(tmp_path / "engine.mvx", dim=self.dim) as index:
            index.add_views([Document(str(n), "x") for n in range(len(views))], views)
        store = EmbeddedStore(tmp_path / "engine.mvx")
        try:
            (tmp_path / "built").mkdir()
            settings = TOY.build(store.snapshot, tmp_path / "built", BuildOptions(work=tmp_path / "work"))
            return TOY.open(tmp_path / "built", {**settings, "built_rows": store.snapshot.num_rows}, None)
        finally:
            store.close()


def test_a_registered_kind_is_built_searched_saved_and_opened_again(toy, filled):
    index, views = filled
    report = index.admin.build("toy", parameters={"size": 7})
    assert (report.kind, report.views) == ("toy", 150) and report.engine_bytes > 150 * 32
    query = np.random.default_rng(2).standard_normal(8).astype(np.float32)
    fresh = {"new": unit(np.ones((1, 8)))}
    index.add_views([Document("new", "")], list(fresh.values()))
    index.delete(ids=["d3"])
    left = {doc_id: rows for doc_id, rows in views.items() if doc_id != "d3"} | fresh
    for scoring in ("max", "drpq"):
        assert_same(index.search(query, 5, scoring=scoring), brute_force(left, query, 5, scoring=scoring))
    assert index.search(query, 5).exact
    with mvindex.open(index.path) as again:
        assert again.info().kind == "toy"
        assert_same(again.search(query, 5), brute_force(left, query, 5))


@pytest.fixture
def no_cached_kinds():
    """Entry points are looked for once a process."""
    # Private: kinds that were looked up are kept for good.
    engines._load_kind.cache_clear()
    yield
    engines._load_kind.cache_clear()


def test_a_kind_is_found_by_its_entry_point(monkeypatch, filled, no_cached_kinds):
    index, views = filled
    entry = EntryPoint(name="toy", value=f"{__name__}:TOY", group=engines.GROUP)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    known = engines.entry_points

    def with_toy(group, name=None):
        return [
            *known(group=group, **({} if name is None else {"name": name})),
            *([entry] if name in (None, "toy") else []),
        ]

    monkeypatch.setattr(engines, "entry_points", with_toy)
    assert engines.kind_names() == [
        "exact",
        "flat",
        "graph",
        "hnsw",
        "ivf-flat",
        "ivf-pq",
        "ivf-rabitq",
        "ivf-sq8",
        "toy",
    ]
    index.admin.build("toy")
    query = views["d7"][1]
    assert_same(index.search(query, 3), brute_force(views, query, 3))


def test_the_engine_of_a_kind_that_is_gone_is_named(toy, filled, monkeypatch):
    index, views = filled
    index.admin.build("toy")
    monkeypatch.setattr(engines, "_REGISTERED", {})
    with mvindex.open(index.path) as again:
        with pytest.raises(EngineMissing, match="toy"):
            again.search(views["d0"][0])
        again.admin.build("exact")
        assert again.search(views["d0"][0]).exact


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("toy", {"nlist": 3}, "kind 'toy': has no parameter 'nlist'; it has size"),
        ("toy", {"size": 1}, "size: expected a whole number from 2 to 9, got 1"),
        ("toy", {"size": True}, "size: expected a whole number from 2 to 9, got True"),
        ("exact", {"size": 3}, "kind 'exact': has no parameter 'size'"),
        ("flat", {"size": 3}, "kind 'flat': has no parameter 'size'; it has no parameters"),
        ("game", {}, "kind: expected one of exact, flat, graph, hnsw, .*toy, got 'game'"),
    ],
)
def test_parameters_that_a_kind_does_not_have_are_refused(toy, filled, kind, parameters, message):
    index, _ = filled
    with pytest.raises(ConfigError, match=message):
        index.admin.build(kind, parameters=parameters)
    assert index.info().kind == "exact"


def test_the_certified_scan_cannot_be_replaced(toy):
    with pytest.raises(ConfigError, match="choose another name"):
        engines.register_engine(EngineKind(name="exact", help="", build=build, open=open_toy))


def test_kinds_are_listed_without_importing_an_engine():
    code = "import json, sys; from mvindex import engines\nnames = engines.kind_names()\n"
    code += "print(json.dumps(['faiss' in sys.modules, names]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    has_faiss, names = json.loads(done.stdout)
    assert not has_faiss and "ivf-pq" in names


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_scan_on_a_gpu_is_named_with_its_device(device):
    assert engines.scan_name(device) == f"torch on {device}"


def test_the_scan_of_the_cpu_is_named_by_what_multiplies(tmp_path):
    assert engines.scan_name() == engines.scan_name("cpu")
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index:
        # Private: the scan that takes over once its loops are compiled.
        fast = engines.open_scan()._open_fast(embedded_store_of(index).snapshot)
    assert isinstance(fast, TorchScan) is not has_int8_products()
    assert engines.scan_name().split()[0] == ("native" if has_int8_products() else "torch")
