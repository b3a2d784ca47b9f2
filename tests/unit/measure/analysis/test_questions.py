"""The questions of an analysis: the sample."""

from hypothesis import given
from hypothesis import strategies as st

from mvindex.measure.analysis.questions import take_sample
from mvindex.measure.questions import Question


def asked(golds):
    return [Question(str(row), f"question {row}?", None, gold) for row, gold in enumerate(golds)]


@given(st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=30), st.integers(1, 12), st.integers(0, 3))
def test_a_sample_keeps_order_and_a_documents_questions_together(golds, most, seed):
    sample = take_sample(iter(asked(golds)), most, seed)
    rows = [int(question.id) for question in sample.questions]
    assert sample.read == len(golds)
    assert len(rows) == min(most, len(golds))
    assert rows == sorted(set(rows))
    # At most one document's questions are there in part: the last that fitted.
    kept = [golds[row] for row in rows if golds[row] is not None]
    in_part = {gold for gold in kept if kept.count(gold) < golds.count(gold)}
    assert len(in_part) <= 1


def test_the_seed_chooses():
    questions = asked([f"document {row}" for row in range(200)])
    chosen = [[one.id for one in take_sample(iter(questions), 20, seed).questions] for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]
