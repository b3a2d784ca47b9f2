"""Near-duplicate views are left out: which ones, at ingest and at build, and what stays true of the answers."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import mvindex
from mvindex.errors import ConfigError, StoreError
from mvindex.index import embedded_store_of
from mvindex.ingest import views as pruning
from mvindex.ingest.views import kept_views
from mvindex.records import Document, Views

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


@settings(max_examples=150)
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


@settings(max_examples=150)
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
    snapshot = embedded_store_of(index).snapshot
    return [snapshot.views.fetch(np.array([row]))[0].tolist() for row in np.flatnonzero(snapshot.alive)]


def test_an_index_made_so_stores_no_near_duplicates_and_counts_them(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=1, prune_views=0.5) as index:
        report = index.add_views([Document("a", ""), Document("b", "")], [[[0.0], [0.25], [1.0]], [[2.0], [2.0]]])
        assert (report.views_given, report.views_stored) == (5, 3)
        assert stored_rows(index) == [[[0.0], [1.0]], [[2.0]]]
        info = index.info()
        assert (info.views, info.prune_views) == (3, 0.5)


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
    monkeypatch.setattr("mvindex.ingest.pipeline.CHUNK_DOCUMENTS", 4)
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
