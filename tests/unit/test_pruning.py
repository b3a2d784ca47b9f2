"""Near-duplicate views are left out: which ones, at ingest and at build, and what stays true of the answers."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import mvindex
from mvindex.engines.protocol import BuildOptions, Kind
from mvindex.errors import ConfigError, DamagedIndex, StoreError
from mvindex.ingest import prune as pruning
from mvindex.ingest.prune import kept_views
from mvindex.records import Document, Views
from mvindex.testing import assert_same, brute_force, unit
from mvindex_connectors.engines.faiss import FaissEngine

NO_DISTANCES = [-0.1, float("nan"), float("inf"), 10**400, "0.1", True]


def kept_plainly(rows, starts, eps):
    """Which rows are kept, one after the other, each compared with all kept before of its document."""
    wide = rows.astype(np.float64)
    is_kept = np.zeros(len(rows), dtype=bool)
    for begin, end in zip(starts[:-1], starts[1:], strict=True):
        for row in range(begin, end):
            before = [other for other in range(begin, row) if is_kept[other]]
            is_kept[row] = all(np.linalg.norm(wide[row] - wide[other]) > eps for other in before)
    return is_kept


def ragged(rng, counts, dim=3):
    """Random rows of documents with so many views each, close enough together that many are near-duplicates."""
    starts = np.cumsum([0, *counts])
    return rng.normal(size=(starts[-1], dim)).astype(np.float32), starts


@st.composite
def documents_and_distance(draw):
    """Rows of small whole numbers, over 7 or not, their starts, and a distance."""
    counts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    starts = np.cumsum([0, *counts])
    rows = draw(arrays.arrays(np.int8, (int(starts[-1]), 2), elements=st.integers(-9, 9)))
    scale = draw(st.sampled_from([1, 7]))
    return (rows / scale).astype(np.float32), starts, draw(st.floats(0, 3))


# --- which views are kept --------------------------------------------------------------------------------------------


def test_a_view_close_to_a_kept_one_is_left_out():
    """0.3 is close to 0; 0.6 is close to 0.3 only, which is not kept; the second document is compared with itself."""
    rows = np.array([[0.0], [0.3], [0.6], [0.3], [5.0], [0.3]], dtype=np.float32)
    kept = kept_views(rows, np.array([0, 3, 6]), 0.5)
    assert kept.tolist() == [True, False, True, True, True, False]


def test_the_distance_itself_is_near_enough():
    rows = np.array([[0, 0], [3, 4], [0, 5.5]], dtype=np.float32)
    assert kept_views(rows, np.array([0, 3]), 5.0).tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("eps", [0.0, 0.4, 1.0, 100.0])
def test_documents_of_any_size_lose_what_a_plain_loop_leaves_out(dtype, eps):
    rng = np.random.default_rng(1)
    rows, starts = ragged(rng, rng.integers(1, 12, 150))
    rows[starts[:-1][np.diff(starts) > 3] + 2] = rows[starts[:-1][np.diff(starts) > 3]]
    rows = rows.astype(dtype)
    kept = kept_views(rows, starts, eps)
    assert (kept == kept_plainly(rows, starts, eps)).all()
    assert kept.sum() < len(rows)


def test_blocks_of_any_size_give_the_same(monkeypatch):
    rows, starts = ragged(np.random.default_rng(2), [5, 1, 40, 5, 7, 5, 40, 2])
    whole = kept_views(rows, starts, 0.7)
    for elements in (1, 10, 50, 333):
        monkeypatch.setattr(pruning, "_BLOCK_ELEMENTS", elements)
        assert (kept_views(rows, starts, 0.7) == whole).all()


def test_distance_zero_leaves_out_exact_duplicates_only():
    """The second differs in the last bit of one number, the smallest that there is; the third does not differ."""
    rows = np.array([[1, 0], [1, 2.0**-149], [1, 0], [1, -0.0], [np.nextafter(np.float32(1), 2), 0]], dtype=np.float32)
    assert kept_views(rows, np.array([0, 5]), 0.0).tolist() == [True, True, False, False, True]


def test_long_views_close_together_are_told_apart():
    """Inner products of 1e8 would hide a distance of 1."""
    rows = np.array([[1e4, 0], [1e4, 1], [1e4, 3]], dtype=np.float32)
    assert kept_views(rows, np.array([0, 3]), 1.5).tolist() == [True, False, True]


def test_thousands_of_views_of_one_document_take_no_square_of_memory():
    rng = np.random.default_rng(3)
    rows = np.repeat(rng.normal(size=(60, 16)), 50, axis=0).astype(np.float32)
    order = rng.permutation(len(rows))
    tracemalloc.start()
    kept = kept_views(rows[order], np.array([0, len(rows)]), 0.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept.sum() == 60
    assert peak < 4_000_000 < len(rows) ** 2


def test_no_documents_have_no_views():
    assert kept_views(np.empty((0, 4), dtype=np.float32), np.zeros(1, dtype=np.int64), 0.1).tolist() == []


@settings(max_examples=150, deadline=None)
@given(documents_and_distance())
def test_each_view_left_out_lies_near_a_kept_one_and_kept_ones_apart(case):
    rows, starts, eps = case
    kept = kept_views(rows, starts, eps)
    for begin, end in zip(starts[:-1], starts[1:], strict=True):
        wide = rows[begin:end].astype(np.float64)
        distances = np.linalg.norm(wide[:, None] - wide[None], axis=2)
        its_kept = np.flatnonzero(kept[begin:end])
        assert its_kept[0] == 0
        assert (distances[:, its_kept].min(axis=1) <= eps * (1 + 1e-12)).all()
        among = distances[np.ix_(its_kept, its_kept)] + np.where(np.eye(len(its_kept)), np.inf, 0)
        assert (among > eps * (1 - 1e-12)).all()


@settings(max_examples=150, deadline=None)
@given(documents_and_distance(), arrays.arrays(np.float32, 2, elements=st.floats(-4, 4, width=32)))
def test_no_score_by_best_view_falls_by_more_than_the_distance_times_the_querys_norm(case, query):
    rows, starts, eps = case
    scores = rows.astype(np.float64) @ query.astype(np.float64)
    kept = kept_views(rows, starts, eps)
    before = np.maximum.reduceat(scores, starts[:-1])
    after = np.maximum.reduceat(np.where(kept, scores, -np.inf), starts[:-1])
    assert (after <= before).all()
    assert (before - after <= eps * np.linalg.norm(query.astype(np.float64)) + 1e-9).all()


@pytest.mark.parametrize("eps", NO_DISTANCES)
def test_what_is_no_distance_is_refused(tmp_path, eps):
    with pytest.raises(ConfigError, match="prune_views"):
        kept_views(np.ones((2, 2), dtype=np.float32), np.array([0, 2]), eps)
    with pytest.raises(ConfigError, match="prune_views"):
        mvindex.create(tmp_path / "x.mvx", dim=2, prune_views=eps)
    assert not (tmp_path / "x.mvx").exists()
    with mvindex.create(tmp_path / "y.mvx", dim=2) as index:
        index.add_views([Document("a", "")], [np.ones((1, 2))])
        with pytest.raises(ConfigError, match="prune_views"):
            index.build("flat", prune_views=eps)


# --- at ingest -------------------------------------------------------------------------------------------------------


class WordEncoder:
    """One view and span a word, by the word's length; a word of the same length is an exact duplicate."""

    dim, max_views, fingerprint = 2, None, "words"
    spec = {"kind": "callable", "name": "words", "fingerprint": "words"}

    def encode_documents(self, documents, on_progress=None):
        words = [document.text.split() for document in documents]
        starts = np.cumsum([0, *map(len, words)])
        rows = np.array([[len(word), 1] for its_words in words for word in its_words], dtype=np.float32)
        spans = [
            (document.text.index(word), document.text.index(word) + len(word))
            for document, its_words in zip(documents, words, strict=True)
            for word in its_words
        ]
        return Views(rows, starts, np.array(spans))

    def encode_queries(self, texts):
        return np.array([[len(text), 1] for text in texts], dtype=np.float32)


def stored_rows(index):
    """The views of the living documents, in the order of the index."""
    snapshot = index._store.snapshot
    return [snapshot.views.fetch(np.array([row]))[0].tolist() for row in np.flatnonzero(snapshot.alive)]


def test_an_index_made_so_stores_no_near_duplicates_and_counts_them(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=1, prune_views=0.5) as index:
        report = index.add_views([Document("a", ""), Document("b", "")], [[[0.0], [0.25], [1.0]], [[2.0], [2.0]]])
        assert (report.views_given, report.views_stored) == (5, 3)
        assert stored_rows(index) == [[[0.0], [1.0]], [[2.0]]]
        info = index.info()
        assert (info.views, info.prune_views, info.engine_prune_views) == (3, 0.5, None)


def test_an_index_made_without_stores_all_views(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=1) as index:
        report = index.add_views([Document("a", "")], [[[1.0], [1.0]]])
        assert (report.views_given, report.views_stored, index.info().views) == (2, 2, 2)
        assert index.info().prune_views is None


def test_the_setting_is_kept_for_later_additions_and_replacements(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=1, prune_views=0) as index:
        index.add_views([Document("a", "old")], [[[1.0], [1.0]]])
    with mvindex.open(tmp_path / "x.mvx") as index:
        report = index.add_views([Document("a", "new"), Document("b", "")], [[[3.0], [3.0], [4.0]], [[5.0], [5.0]]])
        assert (report.replaced, report.added, report.views_given, report.views_stored) == (1, 1, 5, 3)
        assert stored_rows(index) == [[[3.0], [4.0]], [[5.0]]]


def test_the_same_content_again_changes_nothing(tmp_path):
    views = [np.array([[1.0], [1.0]])]
    with mvindex.create(tmp_path / "x.mvx", dim=1, prune_views=0.1) as index:
        index.add_views([Document("a", "")], views)
        report = index.add_views([Document("a", "")], views)
        assert (report.unchanged, report.views_given, report.views_stored) == (1, 0, 0)


@pytest.mark.parametrize("dtype, left", [("fp16", 1), ("fp32", 2)])
def test_views_are_compared_as_they_are_stored(tmp_path, dtype, left):
    """1 + 2^-12 is 1 in fp16, whose next number is 1 + 2^-10."""
    with mvindex.create(tmp_path / "x.mvx", dim=1, dtype=dtype, prune_views=0.0) as index:
        index.add_views([Document("a", "")], [[[1.0], [1 + 2.0**-12]]])
        assert index.info().views == left


def test_spans_of_views_left_out_go_with_them(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", encoder=WordEncoder(), prune_views=0.0) as index:
        index.add([Document("a", "one two three six seventh")])
        parts = sorted(index.explain("any", "a"))
        assert [(part.slot, part.snippet) for part in parts] == [(0, "one"), (1, "three"), (2, "seventh")]


def test_a_bad_view_is_named_by_its_slot_as_given(tmp_path):
    views = [np.array([[1.0], [1.0], [np.nan]])]
    with (
        mvindex.create(tmp_path / "x.mvx", dim=1, prune_views=0.1) as index,
        pytest.raises(StoreError, match="'a': view 2 holds NaN"),
    ):
        index.add_views([Document("a", "")], views)


def test_an_interrupted_run_resumed_gives_the_same_index(tmp_path, monkeypatch):
    monkeypatch.setattr("mvindex.ingest.CHUNK_DOCUMENTS", 4)
    rng = np.random.default_rng(5)
    documents = [Document(str(n), " ".join("x" * length for length in rng.integers(1, 5, 6))) for n in range(20)]

    def breaking():
        yield from documents[:10]
        raise RuntimeError("the source broke")

    with mvindex.create(tmp_path / "a.mvx", encoder=WordEncoder(), prune_views=1.0) as straight:
        straight.add(documents)
        with mvindex.create(tmp_path / "b.mvx", encoder=WordEncoder(), prune_views=1.0) as resumed:
            with pytest.raises(RuntimeError):
                resumed.add(breaking())
            assert len(resumed) == 8
            resumed.add(documents)
            assert stored_rows(resumed) == stored_rows(straight)
            assert resumed.info().views < 120
            assert resumed.search("xxx", 20) == straight.search("xxx", 20)


# --- at build --------------------------------------------------------------------------------------------------------


@pytest.fixture
def crowded(tmp_path):
    """An index of 200 documents with 6 views, two clusters of three views a document, and its views by id."""
    rng = np.random.default_rng(6)
    centres = rng.normal(size=(200, 2, 1, 8))
    rows = unit(centres + 0.03 * rng.normal(size=(200, 2, 3, 8))).reshape(200, 6, 8)
    views = {f"d{n}": its_rows for n, its_rows in enumerate(rows)}
    with mvindex.create(tmp_path / "crowded.mvx", dim=8) as index:
        index.add_views([Document(doc_id, "") for doc_id in views], rows)
        yield index, views


def test_a_build_leaves_near_duplicates_out_and_says_how_many(crowded):
    index, views = crowded
    report = index.build("flat", prune_views=0.4)
    stored = np.concatenate(list(views.values())).astype(np.float16)
    held = int(kept_plainly(stored, np.arange(0, 1201, 6), 0.4).sum())
    assert 200 < held < 1000
    assert (report.views, report.views_left_out, report.documents) == (held, 1200 - held, 200)
    files = {file.name: file.stat().st_size for file in index.path.glob("generation-000001/engine-*/*")}
    assert report.engine_bytes == sum(files.values()) and files["rows.bin"] == 4 * held
    assert report.stored_bytes == 1200 * 8 * 2
    info = index.info()
    assert (info.views, info.prune_views, info.engine_prune_views) == (1200, None, 0.4)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_build_without_it_undoes_it(crowded, kind):
    index, _ = crowded
    pruned = index.build(kind, prune_views=0.4)
    whole = index.build(kind)
    assert (whole.views, whole.views_left_out, whole.prune_views) == (1200, 0, None)
    assert whole.engine_bytes > pruned.engine_bytes
    assert not list(index.path.glob("generation-000001/engine-*/rows.bin"))
    assert index.info().engine_prune_views is None
    assert index.build("exact").engine_bytes == 0


def test_the_exact_kind_cannot_leave_views_out(crowded):
    index, _ = crowded
    index.build("flat")
    with pytest.raises(ConfigError, match="ingest"):
        index.build("exact", prune_views=0.4)
    assert index.info().kind == "flat"


@pytest.mark.parametrize("scoring", ["max", "drpq"])
@pytest.mark.parametrize("eps", [0.0, 0.05, 0.4, 3.0])
def test_a_pruned_flat_engine_gives_the_proven_documents_and_scores_of_all_views(crowded, eps, scoring):
    index, views = crowded
    index.build("flat", prune_views=eps)
    for query in np.random.default_rng(7).normal(size=(6, 8)).astype(np.float32):
        for top_k in (1, 5, 60, 200):
            result = index.search(query, top_k, scoring=scoring)
            assert result.exact
            assert_same(result, brute_force(views, query, top_k, scoring=scoring))


def test_a_best_view_that_was_left_out_still_wins(tmp_path):
    """The held view of `hidden` scores 0.8, below all of the crowd at 0.85, but the one left out scores 0.9."""
    crowd = {f"c{n}": np.array([[0.85, n / 1000]]) for n in range(100)}
    views = crowd | {"hidden": np.array([[0.8, 0.0], [0.9, 0.0]])}
    query = np.array([1.0, 0.0], dtype=np.float32)
    with mvindex.create(tmp_path / "x.mvx", dim=2, dtype="fp32") as index:
        index.add_views([Document(doc_id, "") for doc_id in views], list(views.values()))
        assert index.build("flat", prune_views=0.11).views == 101
        result = index.search(query, 1)
        assert result.exact and [(hit.id, hit.slot) for hit in result.hits] == [("hidden", 1)]
        assert result.hits[0].score == pytest.approx(0.9)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_filters_deletions_and_fresh_documents_are_obeyed_by_a_pruned_engine(crowded, kind):
    index, views = crowded
    index.build(kind, prune_views=0.4)
    index.delete(ids=[f"d{n}" for n in range(0, 200, 4)])
    fresh = unit(np.random.default_rng(8).normal(size=(10, 3, 8)))
    index.add_views([Document(f"new{n}", "") for n in range(10)], fresh)
    left = {doc_id: rows for n, (doc_id, rows) in enumerate(views.items()) if n % 4}
    left |= {f"new{n}": rows for n, rows in enumerate(fresh)}
    for query in (fresh[3, 1], views["d1"][0], views["d0"][0]):
        for keep in (list(left), list(left)[1::2], ["d1", "d2", "new3"]):
            result = index.search(query, 20, filter={"id": {"in": keep}})
            truth = brute_force({doc_id: left[doc_id] for doc_id in keep}, query, 20)
            assert result.short_by == 0 and len(result.hits) == len(truth)
            if kind == "flat":
                assert result.exact
                assert_same(result, truth)
            assert {hit.id for hit in result.hits} <= set(keep)
            assert {hit.score for hit in result.hits} <= {row[1] for row in brute_force(left, query, len(left))}


def test_the_error_of_a_pruned_engine_grows_by_the_distance_times_the_querys_norm(crowded, tmp_path):
    index, _ = crowded
    queries = np.array([[3, 4, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1]], dtype=np.float32)
    errors = []
    for name, eps in (("whole", None), ("pruned", 0.2)):
        (tmp_path / name).mkdir()
        built = FaissEngine().build(
            Kind.FLAT, index._store.snapshot, tmp_path / name, BuildOptions(work=tmp_path / "work", prune_views=eps)
        )
        errors.append(FaissEngine().open(Kind.FLAT, tmp_path / name, {**built, "built_rows": 200}).error(queries))
    assert errors[1] - errors[0] == pytest.approx([1.0, 0.2])
    assert (errors[1] - errors[0] >= [1.0, 0.2]).all()


def test_a_pruned_engine_survives_opening_again_and_its_damage_is_named(crowded):
    index, views = crowded
    index.build("flat", prune_views=0.4)
    query = views["d7"][2]
    with mvindex.open(index.path) as again:
        assert_same(again.search(query, 5), brute_force(views, query, 5))
    (rows_file,) = index.path.glob("generation-000001/engine-*/rows.bin")
    damaged = bytearray(rows_file.read_bytes())
    damaged[40] ^= 1
    rows_file.write_bytes(damaged)
    with mvindex.open(index.path) as again, pytest.raises(DamagedIndex, match="rows.bin"):
        again.search(query, 5)


def test_an_engine_of_an_older_version_still_opens(crowded, tmp_path):
    """Such an engine knows of no pruning, nor how many views it holds."""
    index, views = crowded
    directory = tmp_path / "older"
    directory.mkdir()
    built = FaissEngine().build(Kind.FLAT, index._store.snapshot, directory, BuildOptions(work=tmp_path / "work"))
    older = {"max_norm": built["max_norm"], "faiss": built["faiss"], "built_rows": 200}
    ranking = FaissEngine().open(Kind.FLAT, directory, older)
    scores, rows = ranking.search(views["d3"][:1], 1200, None)
    assert np.sort(rows[0]).tolist() == list(range(1200))
    assert scores[0, 0] == pytest.approx(1, abs=1e-3)
