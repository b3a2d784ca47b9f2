"""Batches of an epoch: laws over random stores, and cases worked by hand."""

import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.errors import ConfigError
from mvindex.records import Document
from mvindex_train.batches import PlanConfig, plan
from mvindex_train.data.records import Example, article_of, content_key
from mvindex_train.data.store import ExampleStore

DOCUMENTS = [Document(name, f"Text {number}", f"Title {number > 4}") for number in range(9) for name in "ab"]
documents = st.sampled_from(DOCUMENTS)


@st.composite
def stores(draw):
    """The examples of a store with at least two passages; some questions are asked twice, with other positives."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 7),
                st.lists(documents, min_size=1, max_size=3),
                st.lists(documents, max_size=4),
                st.booleans(),
            ),
            min_size=2,
            max_size=14,
        ).filter(lambda rows: len({content_key(positives[0]) for _, positives, _, _ in rows}) > 1)
    )
    return [
        Example(
            f"id{place}",
            f"Question {number}?",
            tuple(positives),
            tuple(negatives),
            teacher=tuple(float(score) for score in range(len(positives + negatives))) if has_teacher else None,
        )
        for place, (number, positives, negatives, has_teacher) in enumerate(rows)
    ]


configs = st.builds(
    PlanConfig,
    batch_passages=st.integers(2, 5),
    questions_per_passage=st.integers(1, 3),
    article_runs=st.booleans(),
    hard_negatives=st.integers(0, 3),
)


def law(test):
    """The test of store, config and epoch, over random ones."""

    @settings(max_examples=40)
    @given(stores(), configs, st.integers(0, 3))
    def hold(examples, config, epoch):
        with tempfile.TemporaryDirectory() as folder:
            test(ExampleStore.write(Path(folder), examples), config, epoch)

    hold.__name__, hold.__qualname__ = test.__name__, test.__qualname__
    return hold


def rows_and_batches(store, config, epoch):
    """The rows of each batch of an epoch, and the batch."""
    epoch_plan = plan(store, config, 7, epoch)
    for step in range(epoch_plan.num_steps):
        rows = epoch_plan.batch(step)
        yield rows, epoch_plan.collate(rows)


def batches(store, config, epoch):
    return [batch for _, batch in rows_and_batches(store, config, epoch)]


def passages_of(store, rows):
    return [content_key(store[int(row)].positives[0]) for row in rows]


@law
def test_a_questions_column_holds_its_positive(store, config, epoch):
    for rows, batch in rows_and_batches(store, config, epoch):
        assert batch.questions == [store[int(row)].question for row in rows]
        found = [content_key(batch.documents[column]) for column in batch.positives]
        assert found == passages_of(store, rows)


@law
def test_no_document_stands_twice_and_positives_come_first(store, config, epoch):
    for batch in batches(store, config, epoch):
        contents = [content_key(document) for document in batch.documents]
        assert len(set(contents)) == len(contents)
        assert sorted(set(batch.positives.tolist())) == list(range(len(set(batch.positives.tolist()))))


@law
def test_exactly_the_other_positives_of_a_question_are_excluded(store, config, epoch):
    for rows, batch in rows_and_batches(store, config, epoch):
        members = [store[int(row)] for row in rows]
        for place, example in enumerate(members):
            known = {content_key(d) for other in members if other.question == example.question for d in other.positives}
            own = batch.positives[place]
            wanted = [c != own and content_key(d) in known for c, d in enumerate(batch.documents)]
            assert batch.excluded[place].tolist() == wanted


@law
def test_an_epoch_takes_every_passage_once_with_as_many_questions_as_asked_for(store, config, epoch):
    epoch_plan = plan(store, config, 7, epoch)
    rows = [row for step in range(epoch_plan.num_steps) for row in epoch_plan.batch(step).tolist()]
    assert len(set(rows)) == len(rows)
    all_counts = Counter(passages_of(store, range(len(store))))
    wanted = {content: min(count, config.questions_per_passage) for content, count in all_counts.items()}
    assert Counter(passages_of(store, rows)) == wanted


@law
def test_questions_of_a_passage_come_equally_often_over_epochs(store, config, epoch):
    counts = Counter(passages_of(store, range(len(store))))
    rounds = int(np.lcm.reduce(list(counts.values())))
    seen = Counter()
    for later in range(epoch, epoch + min(rounds, 60)):
        epoch_plan = plan(store, config, 7, later)
        for step in range(epoch_plan.num_steps):
            seen.update(epoch_plan.batch(step).tolist())
    by_passage = {}
    for row, content in enumerate(passages_of(store, range(len(store)))):
        by_passage.setdefault(content, []).append(seen[row])
    spread = 0 if rounds <= 60 else 1
    assert all(max(times) - min(times) <= spread for times in by_passage.values())


@law
def test_batches_have_the_size_asked_for_but_the_last(store, config, epoch):
    epoch_plan = plan(store, config, 7, epoch)
    sizes = sorted(len(set(passages_of(store, epoch_plan.batch(step)))) for step in range(epoch_plan.num_steps))
    num_passages = len(set(passages_of(store, range(len(store)))))
    full, rest = divmod(num_passages, config.batch_passages)
    merged = rest == 1 and full > 0
    last = [config.batch_passages + 1] if merged else [rest] * (rest > 0)
    assert sizes == sorted([config.batch_passages] * (full - merged) + last)
    assert epoch_plan.num_merged == int(merged)


@law
def test_the_same_seed_and_epoch_give_the_same_batches_at_any_step(store, config, epoch):
    first = [(b.questions, b.documents) for b in batches(store, config, epoch)]
    again = plan(ExampleStore.open(store.folder), config, 7, epoch)
    for step in reversed(range(again.num_steps)):
        batch = again.collate(again.batch(step))
        assert (batch.questions, batch.documents) == first[step]


@law
def test_hard_negatives_are_given_ones_and_no_positive_of_their_question(store, config, epoch):
    for rows, batch in rows_and_batches(store, config, epoch):
        num_positives = len(set(batch.positives.tolist()))
        allowed = set()
        for row in rows:
            example = store[int(row)]
            allowed |= {content_key(d) for d in example.negatives} - {content_key(d) for d in example.positives}
        extra = [content_key(document) for document in batch.documents[num_positives:]]
        assert set(extra) <= allowed
        assert len(extra) <= config.hard_negatives * len(rows)
        if config.hard_negatives == 3:  # every question draws all but one of at most four
            assert bool(extra) == bool(
                any({content_key(d) for d in store[int(row)].negatives} & set(extra) for row in rows)
            )


@law
def test_teacher_scores_stand_in_the_columns_of_their_documents(store, config, epoch):
    for rows, batch in rows_and_batches(store, config, epoch):
        members = [store[int(row)] for row in rows]
        if batch.teacher is None:
            assert all(example.teacher is None for example in members)
            continue
        for place, example in enumerate(members):
            known = {}
            for document, score in zip(example.documents, example.teacher or (), strict=False):
                known.setdefault(content_key(document), score)
            wanted = [known.get(content_key(document), np.nan) for document in batch.documents]
            assert np.array_equal(batch.teacher[place], np.array(wanted, np.float32), equal_nan=True)


@law
def test_the_parts_of_processes_are_disjoint_and_together_the_batch(store, config, epoch):
    epoch_plan = plan(store, config, 7, epoch)
    for step in range(epoch_plan.num_steps):
        parts = [epoch_plan.batch(step, rank, 2).tolist() for rank in range(2)]
        assert all(parts)
        assert parts[0] + parts[1] == epoch_plan.batch(step).tolist()
        assert not set(passages_of(store, parts[0])) & set(passages_of(store, parts[1]))


@law
def test_article_runs_keep_an_articles_passages_next_to_each_other(store, config, epoch):
    runs = PlanConfig(batch_passages=config.batch_passages, article_runs=True)
    epoch_plan = plan(store, runs, 7, epoch)
    by_cut = np.argsort(epoch_plan.order)
    rows = [row for step in by_cut for row in epoch_plan.batch(int(step)).tolist()]
    articles = [article_of(store[row].positives[0]) for row in rows]
    changes = sum(first != second for first, second in pairwise(articles))
    assert changes == len(set(articles)) - 1
    # Within an article the passages stand in the order of the store.
    first_row = {}
    for row, content in enumerate(passages_of(store, range(len(store)))):
        first_row.setdefault(content, row)
    for article in set(articles):
        order = [
            first_row[content_key(store[r].positives[0])] for r, a in zip(rows, articles, strict=True) if a == article
        ]
        assert order == sorted(order)


def example(number, passage, *negatives, **fields):
    return Example(f"q{number}", f"Question {number}?", (Document(passage, passage),), tuple(negatives), **fields)


def test_a_batch_worked_by_hand(tmp_path):
    """Two questions of A share a column; A's negative C is B's positive, so it is no second document."""
    store = ExampleStore.write(
        tmp_path,
        [
            example(0, "A", Document("c", "C"), Document("d", "D"), answer_span=(0, 1)),
            example(1, "A"),
            Example("q2", "Question 2?", (Document("x", "C"), Document("y", "D")), teacher=(2.0, 1.0)),
        ],
    )
    config = PlanConfig(batch_passages=4, questions_per_passage=2, hard_negatives=2)
    batch = plan(store, config, 0, 0).collate(np.array([0, 1, 2]))
    assert batch.questions == ["Question 0?", "Question 1?", "Question 2?"]
    assert [document.text for document in batch.documents] == ["A", "C", "D"]
    assert batch.positives.tolist() == [0, 0, 1]
    assert batch.excluded.tolist() == [[False] * 3, [False] * 3, [False, False, True]]
    assert batch.answer_spans == [(0, 1), None, None]
    assert np.array_equal(batch.teacher, [[np.nan] * 3, [np.nan] * 3, [np.nan, 2, 1]], equal_nan=True)
    assert (batch.positives.dtype, batch.excluded.dtype, batch.teacher.dtype) == (np.int64, np.bool_, np.float32)


def test_negatives_are_drawn_anew_every_epoch(tmp_path):
    negatives = [Document(str(number), f"Negative {number}") for number in range(30)]
    store = ExampleStore.write(tmp_path, [example(0, "A", *negatives), example(1, "B")])
    config = PlanConfig(batch_passages=2, hard_negatives=3)
    drawn = [{document.text for document in batches(store, config, epoch)[0].documents[2:]} for epoch in range(4)]
    assert all(len(texts) == 3 for texts in drawn)
    assert len({frozenset(texts) for texts in drawn}) > 1


def test_the_questions_of_a_passage_take_turns(tmp_path):
    store = ExampleStore.write(tmp_path, [*(example(number, "A") for number in range(5)), example(5, "B")])
    config = PlanConfig(batch_passages=2, questions_per_passage=2)
    turns = [sorted(row for row in plan(store, config, 7, epoch).batch(0).tolist() if row < 5) for epoch in range(5)]
    assert turns == [[0, 1], [2, 3], [0, 4], [1, 2], [3, 4]]


def test_epochs_and_seeds_differ_in_their_order(tmp_path):
    store = ExampleStore.write(tmp_path, [example(number, f"P{number}") for number in range(64)])
    orders = [plan(store, PlanConfig(), seed, epoch).batch(0).tolist() for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    assert len({tuple(order) for order in orders}) == 3


def test_batches_of_article_runs_are_shuffled(tmp_path):
    rows = [
        Example(f"q{number}", "Q?", (Document("p", f"P{number}", f"Article {number // 4}"),)) for number in range(64)
    ]
    store = ExampleStore.write(tmp_path, rows)
    epoch_plan = plan(store, PlanConfig(batch_passages=4, article_runs=True), 0, 0)
    starts = [int(epoch_plan.batch(step)[0]) for step in range(16)]
    assert sorted(starts) == list(range(0, 64, 4)) != starts
    assert all(epoch_plan.batch(step).tolist() == list(range(s, s + 4)) for step, s in enumerate(starts))


@pytest.mark.parametrize(("num_passages", "sizes", "merged"), [(8, [4, 4], 0), (9, [4, 5], 1), (10, [4, 4, 2], 0)])
def test_a_last_batch_of_one_passage_is_merged_and_counted(tmp_path, num_passages, sizes, merged):
    store = ExampleStore.write(tmp_path, [example(number, f"P{number}") for number in range(num_passages)])
    epoch_plan = plan(store, PlanConfig(batch_passages=4), 0, 0)
    assert [len(epoch_plan.batch(step)) for step in range(epoch_plan.num_steps)] == sizes
    assert epoch_plan.num_merged == merged


def test_a_last_batch_too_small_for_the_processes_is_merged(tmp_path):
    store = ExampleStore.write(tmp_path, [example(number, f"P{number}") for number in range(11)])
    epoch_plan = plan(store, PlanConfig(batch_passages=8, smallest_batch=4), 0, 0)
    assert [len(epoch_plan.batch(0, rank, 2)) for rank in range(2)] == [6, 5]
    assert (epoch_plan.num_steps, epoch_plan.num_merged) == (1, 3)


def test_too_many_processes_are_refused_at_the_first_step(tmp_path):
    store = ExampleStore.write(tmp_path, [example(number, f"P{number}") for number in range(10)])
    epoch_plan = plan(store, PlanConfig(batch_passages=4), 0, 0)
    with pytest.raises(ConfigError, match="2 passages in the smallest batch"):
        epoch_plan.batch(0, 0, 3)
    with pytest.raises(ConfigError, match="rank 2 of 2"):
        epoch_plan.batch(0, 2, 2)
    with pytest.raises(IndexError):
        epoch_plan.batch(3)


def test_one_passage_alone_is_no_batch_unless_it_has_negatives(tmp_path):
    store = ExampleStore.write(tmp_path, [example(0, "A", Document("n", "N")), example(1, "A")])
    with pytest.raises(ConfigError, match="expected 2 passages or more for one batch, got 1"):
        plan(store, PlanConfig(), 0, 0)
    config = PlanConfig(batch_passages=1, hard_negatives=1)
    assert [document.text for document in batches(store, config, 0)[0].documents] == ["A", "N"]


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_passages": 0},
        {"questions_per_passage": 0},
        {"hard_negatives": -1},
        {"smallest_batch": 0},
        {"batch_passages": 1},
    ],
)
def test_settings_that_make_no_batch_are_refused(fields):
    with pytest.raises(ConfigError, match=next(iter(fields))):
        PlanConfig(**fields)


def test_a_plan_of_many_examples_loops_over_none_of_them(tmp_path, monkeypatch):
    store = ExampleStore.write(tmp_path, [example(number, f"P{number % 50}") for number in range(200)])
    monkeypatch.setattr(ExampleStore, "__getitem__", lambda store, row: pytest.fail("a row was read"))
    epoch_plan = plan(store, PlanConfig(batch_passages=8, questions_per_passage=4), 0, 0)
    assert sum(len(epoch_plan.batch(step)) for step in range(epoch_plan.num_steps)) == 200
