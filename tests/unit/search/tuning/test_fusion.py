"""How hybrid search fuses, chosen by measuring: figures against ir_measures over real searches, and what is kept."""

import sqlite3
from contextlib import closing

import ir_measures
import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, DamagedIndex, IndexLocked, QueryError, Unsupported
from mvindex.index import store_of
from mvindex.io import Target, export_index, import_vectors
from mvindex.search.fusion import Fusion, Method, is_fusion

WORDS = "oil crisis price embargo war peace river delta mountain snow lake forest".split()
COUNT, DIM, ASKED = 300, 12, 40


def drawn_text(rng):
    return " ".join(rng.choice(WORDS, size=int(rng.integers(2, 9))))


def fill(path, **options):
    """An index of documents with drawn words and views."""
    rng = np.random.default_rng(3)
    index = mvindex.create(path, dim=DIM, lexical="unicode", **options)
    documents = [mvindex.Document(f"d{number}", drawn_text(rng)) for number in range(COUNT)]
    index.add_views(documents, rng.standard_normal((COUNT, 2, DIM)).astype(np.float32))
    return index


@pytest.fixture
def asked():
    """Questions, their vectors, and graded judgements, one of them of a document that nobody has."""
    rng = np.random.default_rng(4)
    texts = [drawn_text(rng) for _ in range(ASKED)]
    relevant = [
        {f"d{row}": int(gain) for row, gain in zip(rng.integers(0, COUNT, 8), rng.integers(0, 3, 8), strict=True)}
        | {"gone": 1}
        for _ in range(ASKED)
    ]
    return texts, rng.standard_normal((ASKED, DIM)).astype(np.float32), relevant


def measured(index, asked, **options):
    """The mean nDCG@10 of searches, by ir_measures."""
    texts, vectors, relevant = asked
    results = index.search(vectors, mode="hybrid", text=texts, **options)
    run = {
        str(number): {hit.id: -float(rank) for rank, hit in enumerate(result.hits)}
        for number, result in enumerate(results)
    }
    qrels = {str(number): judged for number, judged in enumerate(relevant)}
    return ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)[ir_measures.nDCG @ 10]


def use(index, point):
    """Let the index fuse as it was measured."""
    numbers = {name: getattr(point, name) for name in ("depth", "constant", "k1", "b")}
    index.admin.set_hybrid_weights(point.method, point.weights, **numbers)
    assert index.fusion == point.fusion


def test_each_figure_is_what_a_search_with_that_fusion_gives(tmp_path, asked):
    with fill(tmp_path / "a.mvx") as index:
        report = index.admin.tune_fusion(asked[0], asked[2], vectors=asked[1])
        changed = next(point for point in report.points if (point.depth, point.constant, point.k1) == (300, 20, 0.9))
        for point in [report.points[0], report.points[7], report.points[-1], report.current, changed]:
            use(index, point)
            assert point.ndcg == pytest.approx(measured(index, asked), abs=1e-9)
    assert len(report.points) == (4 * 9 + 2) * 2 * 5
    figures = [point.ndcg for point in report.points]
    assert figures == sorted(figures, reverse=True)
    assert (report.questions, report.current.method, report.current.weights) == (ASKED, "zscore", (1.0, 1.0))
    assert report.gain == pytest.approx(report.held_out - report.current.ndcg)


def by_words(asked, index):
    """Judgements by which words are right and views are noise: what each question finds by words is relevant."""
    found = index.search(asked[0], mode="lexical", top_k=5)
    return [{hit.id: 5 - rank for rank, hit in enumerate(result.hits)} for result in found]


def test_a_choice_that_is_a_gain_is_kept_and_used_from_then_on(tmp_path, asked):
    with fill(tmp_path / "a.mvx") as index, fill(tmp_path / "s.mvx", shards=3) as sharded:
        relevant = by_words(asked, index)
        reports = [each.admin.tune_fusion(asked[0], relevant, vectors=asked[1]) for each in (index, sharded)]
        report = reports[0]
        assert reports[1] == report
        assert report.chosen == report.points[0]
        # By words alone all is found as it is judged.
        assert (report.chosen.weights, report.chosen.ndcg) == ((0.0, 2.0), 1.0)
        assert report.gain > 0.3
        for each in (index, sharded):
            assert each.info().fusion == {"method": "zscore", "weights": [0.0, 2.0]}
            assert measured(each, (asked[0], asked[1], relevant)) == 1.0
            # What is asked for by name is not what was tuned for another method.
            assert each.search(asked[1][0], mode="hybrid", text=asked[0][0], fusion="rrf") == each.search(
                asked[1][0], mode="hybrid", text=asked[0][0], fusion="rrf", weights=(1, 1)
            )
    with mvindex.open(tmp_path / "a.mvx") as again:
        assert again.fusion == Fusion(weights=(0.0, 2.0))
        again.admin.snapshot(tmp_path / "b.mvx")
        again.admin.compact()
        assert again.fusion == Fusion(weights=(0.0, 2.0))
        again.admin.set_hybrid_weights("minmax", (1, 3))
        assert again.info().fusion == {"method": "minmax", "weights": [1.0, 3.0]}
        again.admin.set_hybrid_weights(None)
        assert again.info().fusion is None
    with mvindex.open(tmp_path / "b.mvx") as copy:
        assert copy.fusion == Fusion(weights=(0.0, 2.0))


def test_a_choice_by_chance_is_no_gain_and_changes_nothing(tmp_path):
    rng = np.random.default_rng(0)
    with fill(tmp_path / "a.mvx") as index:
        texts = [drawn_text(rng) for _ in range(20)]
        vectors = rng.standard_normal((20, DIM)).astype(np.float32)
        # The best of the usual fusion: whatever is chosen otherwise finds less of it.
        found = index.search(vectors, mode="hybrid", text=texts)
        relevant = [{hit.id: 10 - rank for rank, hit in enumerate(result.hits)} for result in found]
        report = index.admin.tune_fusion(texts, relevant, vectors=vectors)
        assert (report.current.ndcg, report.gain, report.chosen) == (1.0, 0.0, None)
        assert index.info().fusion is None


def test_questions_none_of_whose_documents_is_there_count_as_misses(tmp_path, asked):
    with fill(tmp_path / "a.mvx") as index:
        relevant = [{"gone": 1}] + by_words(asked, index)[1:]
        report = index.admin.tune_fusion(asked[0], relevant, vectors=asked[1])
    assert report.missing == 1
    assert report.chosen.ndcg == pytest.approx((ASKED - 1) / ASKED)


def test_what_cannot_be_measured_is_refused(tmp_path, asked):
    texts, vectors, relevant = asked
    with fill(tmp_path / "a.mvx") as index:
        for questions, judged, what in (
            (texts[:19], relevant[:19], "19 questions are judged; expected 20"),
            (texts, relevant[:-1], "40 questions and judgements of 39"),
            (texts, [*relevant[:-1], {"d1": 0}], "question 40: no document is judged relevant"),
        ):
            with pytest.raises(ConfigError, match=what):
                index.admin.tune_fusion(questions, judged, vectors=vectors[: len(questions)])
        with pytest.raises(QueryError, match="got 39 vectors and a list of 40 texts"):
            index.admin.tune_fusion(texts, relevant, vectors=vectors[:-1])
        with pytest.raises(QueryError, match="expected zscore, minmax or rrf"):
            index.admin.set_hybrid_weights("sum")
        assert index.info().fusion is None
    with mvindex.create(tmp_path / "b.mvx", dim=DIM) as silent, pytest.raises(Unsupported, match="build --lexical"):
        silent.admin.tune_fusion(texts, relevant, vectors=vectors)


def test_judgements_and_questions_that_are_none_are_refused(tmp_path, asked):
    texts, vectors, relevant = asked
    with fill(tmp_path / "a.mvx") as index:
        for gain in (float("inf"), float("nan"), 1e308, 10**400, "much", None):
            with pytest.raises(ConfigError, match="question 40: the gain of 'd1'"):
                index.admin.tune_fusion(texts, [*relevant[:-1], {"d2": 1, "d1": gain}], vectors=vectors)
        for text, what in (
            ("\ud800", "query 40 is not valid Unicode"),
            (" ", "query 40 is empty"),
            (7, "expected a text or texts, got list"),
        ):
            with pytest.raises(QueryError, match=what):
                index.admin.tune_fusion([*texts[:-1], text], relevant, vectors=vectors)


def test_progress_is_told_of_the_searches_and_of_what_is_measured(tmp_path, asked):
    told = []
    with fill(tmp_path / "a.mvx") as index:
        index.admin.tune_fusion(asked[0], asked[2], vectors=asked[1], on_progress=lambda *step: told.append(step))
    assert told == [("measuring", done, ASKED) for done in range(1, ASKED + 1)]


@pytest.mark.parametrize("allow_partial", [False, True])
def test_a_damaged_shard_is_named_and_nothing_is_tuned_without_it(tmp_path, asked, allow_partial):
    fill(tmp_path / "s.mvx", shards=2).close()
    catalog = tmp_path / "s.mvx" / "shard-00001-of-00002" / "generation-000001" / "catalog.sqlite"
    with closing(sqlite3.connect(catalog)) as connection, connection:
        connection.execute("UPDATE lexical_blocks SET postings = zeroblob(length(postings))")
    with mvindex.open(tmp_path / "s.mvx", allow_partial=allow_partial) as index:
        with pytest.raises(DamagedIndex, match="shard 1 of 2"):
            index.admin.tune_fusion(asked[0], asked[2], vectors=asked[1])
        assert index.info().fusion is None


def test_settings_of_shards_are_changed_together_or_not_at_all(tmp_path):
    fill(tmp_path / "s.mvx", shards=2).close()
    with mvindex.open(tmp_path / "s.mvx") as one, mvindex.open(tmp_path / "s.mvx") as other:
        stores = store_of(one).sharding.stores
        with stores[1].writing():
            for change in (
                lambda: other.admin.set_hybrid_weights("rrf"),
                lambda: other.admin.enable_lexical("english"),
            ):
                with pytest.raises(IndexLocked, match="shard-00001"):
                    change()
        one.refresh()
        assert [(each.info().fusion, each.info().lexical) for each in stores.values()] == [(None, "unicode")] * 2
        other.admin.set_hybrid_weights("rrf")
        other.admin.enable_lexical("english")
        one.refresh()
        each_has = {(each.info().fusion["method"], each.info().lexical) for each in stores.values()}
        assert each_has == {("rrf", "english")}


NONE = [
    [],
    {"method": "rrf"},
    {"method": "sum", "weights": [1.0, 1.0]},
    {"method": "rrf", "weights": [1.0]},
    {"method": "rrf", "weights": [1.0, -1.0]},
    {"method": "rrf", "weights": [0.0, 0.0]},
    {"method": "rrf", "weights": [1e39, 0.0]},
    {"method": "rrf", "weights": [1, True]},
]


@pytest.mark.parametrize("setting", NONE)
def test_a_setting_that_is_no_fusion_is_told(setting):
    assert not is_fusion(setting)
    assert is_fusion(Fusion().as_setting())


def test_shards_that_a_kill_left_unlike_are_told_of(tmp_path, caplog):
    with fill(tmp_path / "s.mvx", shards=2) as index:
        index.admin.set_hybrid_weights("rrf")
        with store_of(index).sharding.stores[1].writing() as writer:
            writer.change_settings(fusion=None)
        assert index.fusion == Fusion(Method.RRF)
        assert "its shards hold different fusions; set_hybrid_weights() makes them equal" in caplog.text
        caplog.clear()
        index.admin.set_hybrid_weights("minmax")
        assert index.fusion == Fusion(Method.MINMAX)
        assert caplog.text == ""


def test_an_export_brings_along_how_the_index_was_tuned(tmp_path):
    with fill(tmp_path / "a.mvx") as index:
        index.admin.set_hybrid_weights("minmax", (1, 3))
        export_index(index, tmp_path / "out", "npy")
    import_vectors([tmp_path / "out"], Target(path=str(tmp_path / "b.mvx")))
    with mvindex.open(tmp_path / "b.mvx") as again:
        assert again.info().fusion == {"method": "minmax", "weights": [1.0, 3.0]}


@pytest.mark.parametrize(
    "numbers",
    [{"depth": 0}, {"depth": 2.5}, {"constant": -1}, {"k1": True}, {"b": 1.5}, {"k1": float("nan")}, {"k2": 1}],
)
def test_numbers_of_a_fusion_are_checked(tmp_path, numbers):
    with fill(tmp_path / "a.mvx") as index:
        (name,) = numbers
        with pytest.raises(QueryError, match=name):
            index.admin.set_hybrid_weights(**numbers)
        assert index.info().fusion is None


def test_k1_and_b_of_the_index_make_lexical_scores(tmp_path):
    with fill(tmp_path / "a.mvx") as index:
        index.admin.set_hybrid_weights(k1=0.0)
        after = index.search("oil", mode="lexical", top_k=50)
        # Without saturation a term counts once, however often it occurs and however long the text is.
        assert len({hit.score for hit in after.hits}) == 1
        index.admin.set_hybrid_weights(b=0.0)
        once = [
            hit for hit in index.search("oil", mode="lexical", top_k=300).hits if hit.text.split().count("oil") == 1
        ]
        assert len({len(hit.text) for hit in once}) > 1
        assert len({hit.score for hit in once}) == 1
