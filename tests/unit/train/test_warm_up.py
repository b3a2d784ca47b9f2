"""Warming up on raw passages: spans of one passage are positives of each other, those of the others negatives."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.errors import ConfigError, CorpusError
from mvindex.records import Document
from mvindex_train.config import LossConfig
from mvindex_train.warm_up import MIN_WORDS, WarmUpBatches, shuffle, span_batch, two_spans, warm_up_loss


def write_corpus(path, count, words=12):
    texts = [" ".join(f"p{number}w{word}" for word in range(words)) for number in range(count)]
    path.write_text("".join(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts)))
    return str(path)


def passages_of(batch):
    return [question.split("w")[0] for question in batch.questions]


@given(st.integers(MIN_WORDS, 60), st.integers(0, 2**32))
def test_two_spans_are_runs_of_words_that_share_none(num_words, seed):
    words = [f"w{number}" for number in range(num_words)]
    spans = [span.split() for span in two_spans(" ".join(words), np.random.default_rng(seed))]
    places = [[words.index(word) for word in span] for span in spans]
    for place in places:
        assert place == list(range(place[0], place[0] + len(place)))
        assert len(place) >= max(1, num_words // 8)
    assert not set(places[0]) & set(places[1])


def test_either_span_comes_first():
    text = " ".join(map(str, range(20)))
    first = [two_spans(text, np.random.default_rng(seed)) for seed in range(30)]
    assert {int(one.split()[0]) < int(other.split()[0]) for one, other in first} == {True, False}


def test_a_span_keeps_the_text_between_its_words():
    one, other = two_spans("a  b\tc d e f g h i  j", np.random.default_rng(1))
    assert one in "a  b\tc d e f g h i  j"
    assert other in "a  b\tc d e f g h i  j"


def test_the_batch_is_cocondensers():
    torch = pytest.importorskip("torch")
    from mvindex_train.losses import LossInputs, total_loss

    passages = [Document(str(number), " ".join(f"p{number}w{word}" for word in range(9))) for number in range(3)]
    batch = span_batch(passages, np.random.default_rng(0))
    assert len(batch.questions) == len(batch.documents) == 6
    assert [document.text for document in batch.documents] == batch.questions
    assert batch.positives.tolist() == [1, 0, 3, 2, 5, 4]
    assert passages_of(batch) == ["p0", "p0", "p1", "p1", "p2", "p2"]
    # Gao and Callan 2022, eq. 6, written out: of each span, its sibling over all spans but itself.
    vectors = np.random.default_rng(1).normal(size=(6, 4))
    expected = []
    for place in range(6):
        scores = {other: math.exp(vectors[place] @ vectors[other]) for other in range(6) if other != place}
        expected.append(-math.log(scores[place ^ 1] / sum(scores.values())))
    rows = torch.tensor(vectors)
    inputs = LossInputs(
        queries=rows,
        rows=rows,
        starts=torch.arange(7),
        positives=torch.from_numpy(batch.positives),
        excluded=torch.from_numpy(batch.excluded),
    )
    given_loss = LossConfig(local_weight=0.5, answer_view=True, distillation_weight=1.0)
    loss = total_loss(inputs, warm_up_loss(given_loss), 0).total
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-6)


def test_an_epoch_takes_every_passage_once_but_for_what_makes_no_batch(tmp_path):
    source = WarmUpBatches(write_corpus(tmp_path / "c.jsonl", 23), 5, seed=3)
    batches = list(source.batches(0, 0))
    assert source.num_steps(0) == len(batches) == 4
    seen = [passage for batch in batches for passage in passages_of(batch)[::2]]
    assert len(set(seen)) == len(seen) == 20


def test_batches_go_on_at_any_step_as_they_would_have(tmp_path):
    source = WarmUpBatches(write_corpus(tmp_path / "c.jsonl", 23), 5, seed=3)
    whole = [batch.questions for batch in source.batches(1, 0)]
    assert [batch.questions for batch in source.batches(1, 2)] == whole[2:]
    assert [batch.questions for batch in source.batches(0, 0)] != whole


@given(st.integers(0, 40), st.integers(1, 50), st.integers(0, 9))
def test_mixing_loses_and_repeats_nothing(count, size, seed):
    items = [Document(str(number), "text") for number in range(count)]
    found = list(shuffle(items, np.random.default_rng(seed), size))
    assert sorted(found, key=lambda one: int(one.id)) == items


def test_short_passages_are_left_out(tmp_path):
    path = tmp_path / "c.jsonl"
    write_corpus(path, 4, words=MIN_WORDS)
    with path.open("a") as file:
        file.write(json.dumps({"id": "short", "text": "too few words"}) + "\n")
    assert WarmUpBatches(str(path), 4, 0).num_steps(0) == 1
    with pytest.raises(CorpusError, match=r"c\.jsonl: expected 5 passages of 8 words or more, one batch, got 4"):
        WarmUpBatches(str(path), 5, 0).num_steps(0)


def test_what_cannot_be_warmed_up_on_is_refused():
    with pytest.raises(ConfigError, match="expected a file, got stdin"):
        WarmUpBatches("-", 4, 0)
    with pytest.raises(ConfigError, match="batch_passages: expected 2 or more for warm-up"):
        WarmUpBatches("c.tsv", 1, 0)
