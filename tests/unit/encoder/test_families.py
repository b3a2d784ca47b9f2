from types import SimpleNamespace

import numpy as np
import pytest

from mvindex.encoder.arranged import Arranged, arranged_of, joined
from mvindex.encoder.batches import BatchShape, batches
from mvindex.encoder.checkpoint.settings import Pooling
from mvindex.encoder.families.parts import arrange_single, arrange_snippets
from mvindex.encoder.families.windows import CONTEXT, Arrangement, Frame, Window, cut_windows
from mvindex.encoder.text import NO_SPAN, TokenizedText

CLS, SEP = 101, 102


def frame(room, max_views=8, pooling=Pooling.MEAN, prompt_tokens=0):
    return Frame(np.array([CLS]), np.array([SEP]), room, prompt_tokens, pooling, max_views)


def text(*sentence_lengths, prefix=()):
    """Tokens 0, 1, 2, ... in sentences of 10 characters each, given by their number of tokens."""
    starts = np.cumsum([0, *sentence_lengths])
    sentences = [(10 * row, 10 * row + 9) for row in range(len(sentence_lengths))] or [NO_SPAN]
    return TokenizedText(
        np.array(prefix, dtype=np.int32), np.arange(starts[-1], dtype=np.int32), starts, sentences, (0, 999)
    )


def ranges(lengths, room):
    return list(cut_windows(np.cumsum([0, *lengths]), room))


def test_windows_take_as_many_whole_sentences_as_fit():
    assert ranges([3, 4, 2, 5, 1], 9) == [(0, 9), (9, 15)]
    assert ranges([3, 4, 2, 5, 1], 8) == [(0, 7), (7, 15)]
    assert ranges([3, 4], 100) == [(0, 7)]


def test_a_sentence_longer_than_the_window_is_cut_between_tokens_and_the_next_one_follows_on():
    assert ranges([2, 10, 3], 4) == [(0, 2), (2, 6), (6, 10), (10, 12), (12, 15)]
    assert ranges([10], 4) == [(0, 4), (4, 8), (8, 10)]


def test_a_text_without_tokens_has_one_empty_window():
    assert ranges([], 4) == [(0, 0)]
    assert ranges([0, 0], 4) == [(0, 0)]


def test_sentences_without_tokens_cost_no_window():
    assert ranges([0, 4, 0, 4, 0], 4) == [(0, 4), (4, 8)]


def test_each_token_of_a_snippet_counts_for_its_view_and_the_title_for_none():
    arranged = arrange_snippets(text(2, 3, prefix=[7, 8]), frame(20))
    [window] = arranged.windows
    assert window.ids.tolist() == [CLS, 7, 8, 0, 1, 2, 3, 4, SEP]
    assert window.slots.tolist() == [CONTEXT, CONTEXT, CONTEXT, 0, 0, 1, 1, 1, CONTEXT]
    assert arranged.spans == [(0, 9), (10, 19)]


def test_a_snippet_without_tokens_takes_no_slot():
    arranged = arrange_snippets(text(2, 0, 1), frame(20))
    assert arranged.windows[0].slots.tolist() == [CONTEXT, 0, 0, 1, CONTEXT]
    assert arranged.spans == [(0, 9), (20, 29)]


def test_a_snippet_goes_on_in_the_next_window_under_the_same_slot():
    arranged = arrange_snippets(text(3, 3, prefix=[7]), frame(3))
    assert [window.ids.tolist() for window in arranged.windows] == [[CLS, *ids, SEP] for ids in ([0, 1, 2], [3, 4, 5])]
    merged = arrange_snippets(text(3, 3), frame(4, max_views=1))
    assert [window.slots.tolist() for window in merged.windows] == [[CONTEXT, 0, 0, 0, CONTEXT]] * 2
    assert merged.spans == [(0, 19)]


def test_the_title_is_whole_where_one_window_holds_it_and_else_at_most_a_quarter_of_each():
    title = [90, 91, 92, 93, 94, 95]
    [window] = arrange_snippets(text(2, prefix=title), frame(8)).windows
    assert window.ids.tolist() == [CLS, *title, 0, 1, SEP]
    windows = arrange_snippets(text(5, 4, prefix=title), frame(8)).windows
    assert [window.ids.tolist() for window in windows] == [
        [CLS, 90, 91, 0, 1, 2, 3, 4, SEP], [CLS, 90, 91, 5, 6, 7, 8, SEP],
    ]  # fmt: skip


def test_a_prompt_is_never_shortened():
    windows = arrange_snippets(text(9, prefix=[90, 91, 92, 93]), frame(8, prompt_tokens=3)).windows
    assert [window.ids.tolist()[1:4] for window in windows] == [[90, 91, 92]] * 2


def test_single_means_over_everything_in_every_window():
    arranged = arrange_single(text(3, 3, prefix=[9]), frame(4))
    assert [window.ids.tolist() for window in arranged.windows] == [[CLS, 9, 0, 1, 2, SEP], [CLS, 9, 3, 4, 5, SEP]]
    assert [window.slots.tolist() for window in arranged.windows] == [[0] * 6] * 2
    assert arranged.spans == [(0, 999)]


def test_single_by_cls_counts_the_first_state_of_each_window():
    arranged = arrange_single(text(3, 3), frame(3, pooling=Pooling.CLS))
    assert [window.slots.tolist() for window in arranged.windows] == [[0, *[CONTEXT] * 4]] * 2


def test_single_reads_a_title_that_is_too_long_to_repeat_once_and_whole():
    title = [90, 91, 92, 93]
    arranged = arrange_single(text(8, prefix=[80, *title]), frame(8, prompt_tokens=1))
    read = [window.ids.tolist()[1:-1] for window in arranged.windows]
    assert read == [[80, *title], [80, 0, 1, 2, 3, 4, 5, 6], [80, 7]]


@pytest.mark.parametrize("arrange", [arrange_snippets, arrange_single])
def test_without_any_token_the_special_tokens_make_one_view(arrange):
    arranged = arrange(text(), frame(8))
    assert [window.ids.tolist() for window in arranged.windows] == [[CLS, SEP]]
    assert [window.slots.tolist() for window in arranged.windows] == [[0, 0]]
    assert len(arranged.spans) == 1


def documents(windows, rows=1):
    """Each window as a document of its own, of so many rows."""
    return arranged_of([Arrangement([window], [(0, 1)], rows) for window in windows])


def window(length):
    return Window(np.full(length, length, dtype=np.int32), np.array([CONTEXT] + [0] * (length - 1), dtype=np.int32))


def test_batches_hold_every_window_once_within_the_budget_of_padded_tokens():
    lengths = [5, 9, 2, 9, 30, 7, 1, 5]
    windows = [window(length) for length in lengths]
    made = list(batches(documents(windows), BatchShape(max_tokens=18), pad_id=0))
    assert np.concatenate([batch.places for batch in made]).tolist() == [4, 1, 3, 5, 0, 7, 2, 6]
    assert [batch.ids.shape for batch in made] == [(1, 30), (2, 9), (2, 7), (3, 5)]
    assert [batch.mask.sum(axis=1).tolist() for batch in made] == [[30], [9, 9], [7, 5], [5, 2, 1]]


def test_a_batch_pads_with_the_pad_id_and_counts_padding_for_nothing():
    [batch] = batches(documents([window(2), window(3)], rows=4), BatchShape(max_tokens=100), pad_id=77)
    assert batch.ids.tolist() == [[3, 3, 3], [2, 2, 77]]
    assert batch.mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.rows.tolist() == [[CONTEXT, 4, 4], [CONTEXT, 0, CONTEXT]]


def test_row_means_add_up_over_batches_and_leave_context_out():
    torch = pytest.importorskip("torch")
    from mvindex.encoder.forward import RowMeans, row_means

    means = RowMeans(3, 2)
    states = np.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]], np.float32)
    first = SimpleNamespace(rows=np.array([[1, 2, CONTEXT]]), weights=np.array([[2, 1, 0]], np.float32))
    second = SimpleNamespace(rows=np.array([[0, 1, 1]]), weights=np.array([[5, 1, 1]], np.float32))
    means.add(first, states)
    means.add(second, states)
    # Row 0: (1, 2). Row 1: (1, 2) twice, (3, 4), (5, 6). Row 2: (3, 4).
    expected = [[1, 2], [2.5, 3.5], [3, 4]]
    assert means.means().tolist() == expected
    tensor = torch.from_numpy(states)
    assert row_means([(first, tensor), (second, tensor)], 3, 2, torch.device("cpu")).tolist() == expected


def test_shapes_come_in_steps_and_padding_counts_for_nothing():
    windows = [window(length) for length in (9, 7, 7, 3, 2, 2, 2)]
    shape = BatchShape(max_tokens=64, length_step=8, count_step=2, max_length=12)
    made = list(batches(documents(windows), shape, pad_id=5))
    # 9 -> 12 (not 16: the model has 12 positions), 64 // 12 = 5 -> 4 lines; three windows are left, in four lines.
    assert [batch.ids.shape for batch in made] == [(4, 12), (4, 8)]
    assert [batch.places.tolist() for batch in made] == [[0, 1, 2, 3], [4, 5, 6]]
    assert (made[1].rows[3] == CONTEXT).all() and made[1].mask[3].tolist() == [1] + [0] * 7
    assert shape.count(1) == 1


def test_a_few_long_windows_do_not_stretch_many_short_ones():
    shape = BatchShape(max_tokens=4096, length_step=8, count_step=2)
    made = list(batches(documents([window(length) for length in [8] * 20 + [20] * 3]), shape, pad_id=5))
    # Cut after 4 lines, 16 x 19 tokens of padding are spared; after 2 none were.
    assert [batch.ids.shape for batch in made] == [(4, 24), (20, 8)]
    assert sorted(np.concatenate([batch.places for batch in made])) == list(range(23))
    # Of 6 windows in all a batch of their own is not worth it: 16 x 2 tokens.
    few = list(batches(documents([window(length) for length in [20, 20, 20, 8, 8, 8]]), shape, pad_id=5))
    assert [batch.ids.shape for batch in few] == [(6, 24)]


def test_where_any_shape_will_do_a_batch_spares_less_padding():
    windows = [window(length) for length in [16] * 20 + [14] * 40]
    shapes = {
        share: [batch.ids.shape for batch in batches(documents(windows), shape, pad_id=5)]
        for share in (1 / 8, 0)
        for shape in [BatchShape(max_tokens=4096, min_spared=share)]
    }
    # Of 960 tokens with padding 80 are spared.
    assert shapes == {1 / 8: [(60, 16)], 0: [(20, 16), (40, 14)]}


def test_windows_joined_taken_and_sent_to_another_process_stay_what_they_are():
    plain, weighted = (
        window(3),
        Window(np.arange(2, dtype=np.int32), np.zeros(2, np.int32), np.full(2, 0.5, np.float32)),
    )
    placed = Window(np.arange(4, dtype=np.int32), np.zeros(4, np.int32), positions=np.zeros(4, np.int32))
    both = joined([documents([plain, weighted]), documents([placed], rows=2)])
    sent = Arranged.from_bytes(both.as_bytes())
    assert sent.weights.tolist() == [1, 1, 1, 0.5, 0.5, 1, 1, 1, 1]
    assert sent.positions.tolist() == [0, 1, 2, 0, 1, 0, 0, 0, 0]
    assert sent.scopes is None and sent.num_rows.tolist() == [1, 1, 2]
    turned = sent.take(np.array([2, 0]))
    assert turned.ids.tolist() == [0, 1, 2, 3, 3, 3, 3] and turned.lengths.tolist() == [4, 3]
    assert turned.first_rows.tolist() == [0, 2] and len(turned) == 2
