"""Milvus' own indexes: built over every row, searched as deep as asked, scored from the stored views."""

import numpy as np
import pytest
from milvus_documents import embedded, fill, topical

import mvindex
from mvindex.errors import ConfigError, StaleReader, Unsupported
from mvindex.index import store_of

TOP_K = 20


def recall(index, same, queries):
    """The mean share of the exact documents that are found; every score is that of the exact search."""
    shares = []
    for query in queries:
        exact = {hit.id: hit.score for hit in same.search(query, len(same)).hits}
        result = index.search(query, TOP_K)
        assert len(result.hits) == TOP_K
        assert not result.exact
        assert [hit.score for hit in result.hits] == [exact[hit.id] for hit in result.hits]
        shares.append(len({hit.id for hit in result.hits} & set(list(exact)[:TOP_K])) / TOP_K)
    return float(np.mean(shares))


def indexed_rows(index):
    client = store_of(index).connection._client
    name = f"{store_of(index).connection.address.collection}_views"
    found = client.describe_index(name, index_name="vec")
    return found["index_type"], int(found["indexed_rows"]), int(found["total_rows"])


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("hnsw", 0.9),
        pytest.param("ivf-flat", 0.8, marks=pytest.mark.full),
        pytest.param("ivf-sq8", 0.8, marks=[pytest.mark.full, pytest.mark.long]),
        pytest.param("ivf-pq", 0.5, marks=pytest.mark.full),
    ],
)
def test_a_kind_covers_every_row_and_is_rescored(place, tmp_path, kind, least):
    views = topical(800, 5)
    queries = np.random.default_rng(3).standard_normal((10, 16)).astype(np.float32)
    with mvindex.create(place, dim=16) as index, embedded(tmp_path, views) as same:
        fill(index, views)
        if kind not in index.info().server["kinds"]:
            with pytest.raises(Unsupported, match=kind):
                index.admin.build(kind)
            return
        report = index.admin.build(kind)
        assert (report.kind, report.views) == (kind, 4000)
        name, indexed, total = indexed_rows(index)
        assert (name, indexed) == (kind.upper().replace("-", "_"), total)
        assert total >= 4000
        assert index.info().kind == kind
        assert recall(index, same, queries) >= least
        exact = index.search(queries[0], TOP_K, exact=True)
        assert exact.exact
        assert exact.hits == same.search(queries[0], TOP_K).hits
        few = index.search(queries[0], TOP_K, filter={"id": {"in": ["d1", "d2"]}})
        assert (len(few.hits), few.exact) == (2, True)
        fill(index, {"new": views["d1"]})
        assert "new" in [hit.id for hit in index.search(views["d1"][0], 5).hits]
        index.admin.build("flat")
        assert index.search(queries[0], TOP_K).exact


def test_tuning_keeps_the_fastest_setting_that_reaches_the_target(place):
    views = topical(600, 5)
    with mvindex.create(place, dim=16) as index:
        fill(index, views)
        with pytest.raises(ConfigError, match="nothing to tune"):
            index.admin.tune()
        index.admin.build("hnsw")
        report = index.admin.tune(target_recall=0.9)
        assert report.chosen is not None
        assert report.chosen.recall >= 0.9
    with mvindex.open(place) as index:
        assert index.info().search == report.chosen.search


@pytest.mark.needs("milvus-lite")
@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_an_index_that_is_built_anew_while_it_is_tuned_keeps_its_own_setting(tmp_path, kind):
    place, built = f"milvus-lite:{tmp_path / 'x.db'}", []

    def build_once(phase, done, total):
        if not built:
            other.admin.build(kind)
            built.append(store_of(other).settings["engine"])

    with mvindex.create(place, dim=8) as index, mvindex.open(place) as other:
        fill(index, topical(30, 2, dim=8))
        index.admin.build("ivf-flat", nlist=2)
        with pytest.raises(StaleReader, match="built meanwhile"):
            index.admin.tune(target_recall=0.1, on_progress=build_once)
        index.refresh()
        assert [store_of(index).settings["engine"]] == built


def test_another_client_does_not_take_a_graph_for_exact(place):
    if place.startswith("milvus-lite"):
        pytest.skip("a Lite database has one client")
    views = topical(300, 4)
    with mvindex.create(place, dim=16) as index:
        fill(index, views)
        with mvindex.open(place) as other:
            assert other.search(views["d1"][0], 5).exact
            index.admin.build("hnsw")
            assert not other.search(views["d1"][0], 5).exact


def test_kinds_that_this_milvus_does_not_build_are_refused(place):
    with mvindex.create(place, dim=16) as index:
        with pytest.raises(Unsupported, match="DISKANN"):
            index.admin.build("DISKANN")
        with pytest.raises(ConfigError, match="quantum"):
            index.admin.build("quantum")
        with pytest.raises(ConfigError, match="nlist"):
            index.admin.build("hnsw", nlist=4)
