"""Documents that an engine lacks are searched exactly: each by itself where they are few, else by a scan."""

import numpy as np
import pytest

import mvindex
from mvindex.search import exact
from mvindex.testing import unit

pytest.importorskip("faiss")

BUILT, FRESH, VIEWS, DIM = 800, 300, 3, 16


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """An index of which some documents, built and fresh ones, were deleted."""
    views = unit(np.random.default_rng(0).standard_normal((BUILT + FRESH, VIEWS, DIM)))
    documents = [mvindex.Document(f"d{n}", "text", metadata={"third": n % 3}) for n in range(BUILT + FRESH)]
    with mvindex.create(tmp_path_factory.mktemp("fresh") / "a.mvx", dim=DIM) as index:
        index.add_views(documents[:BUILT], views[:BUILT])
        index.admin.build("ivf-flat")
        index.add_views(documents[BUILT:], views[BUILT:])
        index.delete(ids=[f"d{n}" for n in range(0, BUILT + FRESH, 7)])
        yield index


QUERIES = np.concatenate([unit(np.random.default_rng(1).standard_normal((5, DIM))), np.zeros((1, DIM))])


@pytest.mark.parametrize(
    "options",
    [{}, {"scoring": "drpq"}, {"filter": {"third": 1}}, {"filter": {"third": 1}, "scoring": "drpq", "top_k": 200}],
)
@pytest.mark.parametrize("queries", [QUERIES, QUERIES[:1]], ids=["batch", "one"])
def test_a_scan_finds_what_scoring_each_finds(index, monkeypatch, queries, options):
    found = []
    for least in (1, FRESH + 1):
        monkeypatch.setattr(exact, "_SCANNED_TOGETHER", least)
        results = index.search(queries, **{"top_k": 10, **options})
        found.append([[(hit.id, hit.score, hit.slot) for hit in result.hits] for result in results])
    assert found[0] == found[1]
    is_fresh = [int(doc_id[1:]) >= BUILT for result in found[0] for doc_id, _, _ in result]
    assert any(is_fresh) and not all(is_fresh)


@pytest.mark.parametrize(("least", "num_scored_at_once"), [(1, 0), (FRESH + 1, 1)])
def test_many_are_scanned_and_few_are_not(index, monkeypatch, least, num_scored_at_once):
    scored_at_once, same_for_all = [], exact._same_for_all
    monkeypatch.setattr(exact, "_SCANNED_TOGETHER", least)
    monkeypatch.setattr(exact, "_same_for_all", lambda *args: (scored_at_once.append(args), same_for_all(*args))[1])
    index.search(QUERIES[0])
    assert len(scored_at_once) == num_scored_at_once
