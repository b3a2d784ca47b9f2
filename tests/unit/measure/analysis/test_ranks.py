"""Ranks by variants of the views, against a search that sorts everything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mvindex
from mvindex.index import embedded_store_of
from mvindex.ingest.views import kept_views
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.measure.analysis import ranks
from mvindex.measure.analysis.ranks import NOT_FOUND, RankRequest, RelevantDocs, ViewBlock, choose_pool, count_ranks


def make_index(path, documents):
    index = mvindex.create(path, dim=len(documents[0][0]), dtype="fp32")
    index.add_views([mvindex.Document(str(row), "") for row in range(len(documents))], documents)
    return index


def ragged(generator, number, most_views, dim=3):
    """Views with small whole entries: many ties, and sums that are exact."""
    return [
        generator.integers(-2, 3, size=(generator.integers(1, most_views + 1), dim)).astype(np.float32)
        for _ in range(number)
    ]


def sorted_rank(scores, relevant):
    """The rank of the best relevant document when all are sorted by score, then position."""
    order = sorted(range(len(scores)), key=lambda row: (-scores[row], row))
    ranks = [order.index(row) + 1 for row in relevant if scores[row] > -np.inf]
    return min(ranks, default=NOT_FOUND)


def plain_score(views, query, scoring):
    if not len(views):
        return -np.inf
    scores = views.astype(np.float64) @ query
    if scoring.aggregate is Aggregate.MAX:
        return scores.max()
    weights = np.exp((scores - scores.max()) / scoring.temperature)
    return (weights * scores).sum() / weights.sum()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("aggregate", list(Aggregate))
def test_ranks_are_those_of_sorting_every_document(tmp_path, seed, aggregate):
    generator = np.random.default_rng(seed)
    documents = ragged(generator, 40, 4)
    queries = generator.integers(-3, 4, size=(12, 3)).astype(np.float32)
    relevant = [sorted(generator.choice(40, size=generator.integers(0, 3), replace=False).tolist()) for _ in queries]
    which = np.repeat(np.arange(len(queries)), [len(positions) for positions in relevant])
    flat = np.array([position for positions in relevant for position in positions], dtype=np.int64)
    scoring = Scoring(aggregate, 0.7)
    chosen = [
        ranks.all_views(),
        ranks.single_view(1),
        ranks.pruned(1.5),
        ranks.MeanView("mean", is_unit=False),
    ]
    done = []
    with make_index(tmp_path / "i.mvx", documents) as index:
        pool = choose_pool(embedded_store_of(index).snapshot, flat, 1000, 0)
        table = count_ranks(pool, RankRequest(queries, RelevantDocs(which, flat), scoring), chosen, done.append)

    def reduced(views):
        kept = kept_views(views, np.array([0, len(views)]), 1.5)
        return [views, views[1:2], views[kept], views.mean(axis=0, keepdims=True)]

    for row, query in enumerate(queries.astype(np.float64)):
        for column in range(len(chosen)):
            scores = np.array([plain_score(reduced(views)[column], query, scoring) for views in documents])
            is_relevant = np.isin(np.arange(len(documents)), relevant[row])
            # Softmax and mean are rounded: what differs in the last digits may tie. Whole numbers are exact.
            slack = 1e-4 if aggregate is Aggregate.DRPQ or column == 3 else 0
            best, worst = (
                sorted_rank(scores + np.where(is_relevant, sign * slack, 0), relevant[row]) for sign in (1, -1)
            )
            assert best <= table.ranks[row, column] <= worst
    counts = [sum(len(reduced(views)[column]) for views in documents) for column in range(len(chosen))]
    assert table.vectors.tolist() == counts
    assert sum(done) == 2 * len(documents)


def test_the_rank_by_all_views_is_that_of_the_search(tmp_path):
    generator = np.random.default_rng(5)
    documents, queries = ragged(generator, 50, 5), generator.integers(-3, 4, size=(20, 3)).astype(np.float32)
    gold = generator.integers(0, 50, size=20)
    with make_index(tmp_path / "i.mvx", documents) as index:
        pool = choose_pool(embedded_store_of(index).snapshot, gold, 1000, 0)
        table = count_ranks(
            pool,
            RankRequest(queries, RelevantDocs(np.arange(20), gold), Scoring()),
            [ranks.all_views()],
            lambda _: None,
        )
        for row, result in enumerate(index.search(queries, top_k=50, exact=True)):
            assert [hit.id for hit in result.hits].index(str(gold[row])) + 1 == table.ranks[row, 0]


def test_a_question_without_relevant_documents_is_not_found(tmp_path):
    with make_index(tmp_path / "i.mvx", [np.eye(2, dtype=np.float32)]) as index:
        pool = choose_pool(embedded_store_of(index).snapshot, np.empty(0, dtype=np.int64), 10, 0)
        nothing = RelevantDocs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        table = count_ranks(
            pool, RankRequest(np.ones((1, 2), np.float32), nothing, Scoring()), [ranks.all_views()], lambda _: None
        )
    assert table.ranks.tolist() == table.positions.tolist() == [[NOT_FOUND]]


def test_a_sample_holds_the_relevant_documents_and_is_reproducible(tmp_path):
    with make_index(tmp_path / "i.mvx", [np.eye(2, dtype=np.float32)] * 30) as index:
        index.delete(ids=["3"])
        relevant = np.array([29, 4, 4])
        pool, again, other = (choose_pool(embedded_store_of(index).snapshot, relevant, 10, seed) for seed in (1, 1, 2))
    assert len(pool) == 10
    assert pool.of == 29
    assert {4, 29} <= set(pool.doc_rows.tolist())
    assert 3 not in pool.doc_rows
    assert pool.doc_rows.tolist() == again.doc_rows.tolist() == sorted(set(pool.doc_rows.tolist()))
    assert pool.doc_rows.tolist() != other.doc_rows.tolist()


def test_views_are_taken_furthest_first():
    # On a line at 0, 1, 10, 11: after 0 comes 11; then 1 and 10 are as far, and the lower slot comes first.
    rows = np.array([[0], [1], [10], [11]], dtype=np.float32)
    assert ranks.ranks_apart(ViewBlock(0, rows, np.array([0, 4])), 4).tolist() == [0, 2, 3, 1]
    assert ranks.ranks_apart(ViewBlock(0, rows, np.array([0, 4])), 2).tolist() == [0, 2, 2, 1]


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
@settings(max_examples=40)
def test_the_most_different_views_are_those_of_a_plain_greedy_loop(seed, most):
    generator = np.random.default_rng(seed)
    documents = [generator.normal(size=(generator.integers(1, 6), 2)).astype(np.float32) for _ in range(5)]
    starts = np.cumsum([0, *map(len, documents)])
    found = ranks.ranks_apart(ViewBlock(0, np.concatenate(documents), starts), most)
    for views, begin, end in zip(documents, starts[:-1], starts[1:], strict=True):
        taken = [0]
        while len(taken) < min(most, len(views)):
            gaps = [min(np.sum((view - views[other]) ** 2) for other in taken) for view in views]
            taken.append(max((row for row in range(len(views)) if row not in taken), key=lambda row: (gaps[row], -row)))
        expected = [taken.index(row) if row in taken else most for row in range(len(views))]
        assert found[begin:end].tolist() == expected
