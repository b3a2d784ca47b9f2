"""Viewer tokens: the inputs they stand in, written out by hand, and the states that become views."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.encoder import load_encoder
from mvindex.encoder.checkpoint.settings import Pooling
from mvindex.encoder.families.viewers import arrange_context_viewers, arrange_viewers
from mvindex.encoder.families.windows import CONTEXT, Frame
from mvindex.encoder.text import NO_SPAN, TokenizedText
from mvindex.errors import CheckpointError
from mvindex.records import Document
from tests.helpers.tiny_models import (
    KINDS,
    add_viewers,
    close,
    copied,
    make_kind,
    make_model,
    mean,
    reference_of,
    torch,
    unit,
    write_settings,
)

pytestmark = pytest.mark.usefixtures("plain_arithmetic")
VIEWS = 3
TEXT = "The cat sat on the mat. It ran."


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A function of kind and family: the folder of such a checkpoint, made once."""
    made = {}

    def model(kind, family):
        if (kind, family) not in made:
            folder = make_kind(tmp_path_factory.mktemp(f"{kind}-{family}"), kind)
            made[kind, family] = add_viewers(folder, VIEWS, family, pooling="cls")
        return made[kind, family]

    return model


def viewers_of(reference):
    return [reference.token(f"[VIE_{number}]") for number in range(1, VIEWS + 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_viewers_stand_at_position_0_and_the_text_starts_at_1(models, kind):
    folder = models(kind, "viewers")
    reference = reference_of(folder)
    ids = [*viewers_of(reference), *reference.tokens("Dog"), *reference.tokens("\n" + TEXT), reference.sep]
    states = reference.states(ids, [0, 0, 0, *range(1, len(ids) - 2)])
    views = load_encoder(folder).encode_documents([Document("1", TEXT, "Dog")])
    close(views.rows, unit(states[:VIEWS]))
    assert views.spans.tolist() == [[0, len(TEXT)]] * VIEWS


@pytest.mark.parametrize("kind", KINDS)
def test_context_viewers_stand_before_their_snippets_at_ordinary_positions(models, kind):
    folder = models(kind, "context-viewers")
    reference = reference_of(folder)
    first, second, third = viewers_of(reference)
    title, one, two = (reference.tokens(part) for part in ("Dog", "\nThe cat sat on the mat.", " It ran."))
    ids = [first, *title, second, *one, third, *two, reference.sep]
    states = reference.states(ids)
    views = load_encoder(folder).encode_documents([Document("1", TEXT, "Dog")])
    places = [0, 1 + len(title), 2 + len(title) + len(one)]
    close(views.rows, unit(states[places]))
    assert views.spans.tolist() == [[-1, -1], [0, 23], [24, 31]]


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("family", ["viewers", "context-viewers"])
def test_a_question_stands_between_its_viewer_and_the_separator(models, kind, family):
    folder = models(kind, family)
    reference = reference_of(folder)
    states = reference.states([reference.token("[VIE]"), *reference.tokens("was it the cat?"), reference.sep])
    found = load_encoder(folder).encode_queries(["was it the cat?"])
    close(found, unit(states[:1]))


def test_a_question_pooled_by_mean_is_read_as_without_viewers(models, tmp_path):
    folder = copied(models("bert", "viewers"), tmp_path, family="viewers", max_views=VIEWS, pooling="mean")
    reference = reference_of(folder)
    states = reference.states([reference.token("[CLS]"), *reference.tokens("the cat"), reference.sep])
    close(load_encoder(folder).encode_queries(["the cat"])[0], unit(mean(states)))


def test_several_windows_of_viewers_are_the_mean_of_each_viewers_states(models, tmp_path):
    # Room of 12 tokens: 3 viewers, 8 of text, [SEP]. The sentences have 7, 3 and 7 tokens.
    lengths = {"document": 12, "query": 12}
    folder = copied(models("bert", "viewers"), tmp_path, family="viewers", max_views=VIEWS, lengths=lengths)
    reference = reference_of(folder)
    text = "The cat sat on the mat. It ran. He sat on the old rug."
    parts = ["The cat sat on the mat.", " It ran.", " He sat on the old rug."]
    windows = [
        reference.states([*viewers_of(reference), *reference.tokens(part), reference.sep], [0, 0, 0, *range(1, size)])
        for part, size in zip(parts, (9, 5, 9), strict=True)
    ]
    assert [len(reference.tokens(part)) for part in parts] == [7, 3, 7]
    expected = unit(mean([states[:VIEWS] for states in windows]))
    close(load_encoder(folder).encode_documents([Document("1", text)]).rows, expected)


def test_a_snippet_across_windows_is_the_mean_of_its_viewers_and_unused_ones_stand_last(models, tmp_path):
    # Room: 12 less [CLS]'s place, [SEP] and two more viewers: 8. One sentence of 11 tokens, cut at 8.
    lengths = {"document": 12, "query": 12}
    folder = copied(
        models("bert", "context-viewers"), tmp_path, family="context-viewers", max_views=VIEWS, lengths=lengths
    )
    reference = reference_of(folder)
    first, second, third = viewers_of(reference)
    text = "the cat sat on the mat and"
    tokens = reference.tokens(text)
    assert len(tokens) == 9  # "and" is in letters
    one = reference.states([first, *tokens[:8], reference.sep])
    two = reference.states([first, *tokens[8:], second, third, reference.sep])
    views = load_encoder(folder).encode_documents([Document("1", text)])
    close(views.rows, unit([(one[0] + two[0]) / 2]))
    assert views.spans.tolist() == [[0, len(text)]]


@pytest.mark.parametrize(("title", "times"), [("", 1), ("Dog", 0.5), ("Dog", 3)])
def test_a_residual_adds_the_mean_of_its_tokens_to_a_viewer_so_many_times(models, tmp_path, title, times):
    folder = copied(
        models("bert", "context-viewers"), tmp_path, family="context-viewers", max_views=VIEWS, residual=times
    )
    reference = reference_of(folder)
    parts = [title, "\nThe cat sat on the mat.", " It ran."] if title else ["The cat sat on the mat.", " It ran."]
    ids, places = [], []
    for viewer, part in zip(viewers_of(reference), parts, strict=False):
        tokens = reference.tokens(part)
        places.append((len(ids), len(ids) + 1, len(ids) + 1 + len(tokens)))
        ids += [viewer, *tokens]
    states = reference.states([*ids, *viewers_of(reference)[len(parts) :], reference.sep])
    expected = unit([states[viewer] + times * mean(states[begin:end]) for viewer, begin, end in places])
    close(load_encoder(folder).encode_documents([Document("1", TEXT, title)]).rows, expected)


def test_with_own_snippet_a_viewer_reads_its_snippet_only_and_no_token_reads_a_viewer(models, tmp_path):
    folder = copied(
        models("bert", "context-viewers"), tmp_path, family="context-viewers", max_views=VIEWS, own_snippet=True
    )
    reference = reference_of(folder)
    first, second, third = viewers_of(reference)
    one, two = reference.tokens("The cat sat on the mat."), reference.tokens(" It ran.")
    # [CLS] stays before the text, which is read as without viewers.
    ids = [reference.cls, first, *one, second, *two, third, reference.sep]
    owner = [None] + [0] * (1 + len(one)) + [1] * (1 + len(two)) + [2, None]
    viewer_places = {1, 2 + len(one), len(ids) - 2}
    reads = [
        [
            reading == read
            or (owner[read] == owner[reading] if reading in viewer_places else read not in viewer_places)
            for read in range(len(ids))
        ]
        for reading in range(len(ids))
    ]
    with torch.no_grad():
        mask = torch.zeros(1, 1, len(ids), len(ids), dtype=torch.float64)
        mask[0, 0][~torch.tensor(reads)] = -torch.inf
        states = reference.model(input_ids=torch.tensor([ids]), attention_mask=mask).last_hidden_state[0].numpy()
    views = load_encoder(folder).encode_documents([Document("1", TEXT), Document("2", TEXT * 2)])
    close(views.rows[:2], unit(states[[1, 2 + len(one)]]))


@pytest.mark.parametrize("family", ["viewers", "context-viewers"])
def test_prompts_are_read_behind_the_first_viewers(models, tmp_path, family):
    folder = copied(
        models("bert", family), tmp_path, family=family, max_views=VIEWS, pooling="cls",
        prompts={"document": "it was: ", "query": "he ran: "},
    )  # fmt: skip
    reference = reference_of(folder)
    viewers, prompt = viewers_of(reference), reference.tokens("it was:")
    one, two = reference.tokens(" The cat sat on the mat."), reference.tokens(" It ran.")
    if family == "viewers":
        ids = [*viewers, *prompt, *one, *two, reference.sep]
        expected = reference.states(ids, [0, 0, 0, *range(1, len(ids) - 2)])[:VIEWS]
    else:
        ids = [viewers[0], *prompt, *one, viewers[1], *two, viewers[2], reference.sep]
        expected = reference.states(ids)[[0, 1 + len(prompt) + len(one)]]
    encoder = load_encoder(folder)
    close(encoder.encode_documents([Document("1", TEXT)]).rows, unit(expected))
    ids = [reference.token("[VIE]"), *reference.tokens("he ran: the cat"), reference.sep]
    close(encoder.encode_queries(["the cat"]), unit(reference.states(ids)[:1]))


@pytest.mark.parametrize("title", ["", "Dog"])
def test_a_document_without_text_is_spoken_for_by_viewers(models, title):
    for family, count in (("viewers", VIEWS), ("context-viewers", 1)):
        folder = models("bert", family)
        reference = reference_of(folder)
        viewers, title_ids = viewers_of(reference), reference.tokens(title)
        if family == "viewers":
            ids, positions = [*viewers, *title_ids, reference.sep], [0, 0, 0, *range(1, len(title_ids) + 2)]
        else:
            ids, positions = [viewers[0], *title_ids, *viewers[1:], reference.sep], None
        views = load_encoder(folder).encode_documents([Document("1", "" if title else "\u0301", title)])
        close(views.rows, unit(reference.states(ids, positions)[:count]))
        assert views.spans.tolist() == [[-1, -1] if title else [0, 1]] * count


def test_fewer_viewers_may_be_asked_for_and_more_not(models):
    folder = models("bert", "viewers")
    reference = reference_of(folder)
    ids = [*viewers_of(reference)[:2], *reference.tokens("the cat"), reference.sep]
    views = load_encoder(folder, max_views=2).encode_documents([Document("1", "the cat")])
    close(views.rows, unit(reference.states(ids, [0, 0, 1, 2, 3])[:2]))
    with pytest.raises(CheckpointError, match=r"has 3 viewer tokens .*expected 4 for the family 'viewers'"):
        load_encoder(folder, max_views=4)


def test_a_tokenizer_without_viewer_tokens_is_refused(tmp_path):
    folder = make_model(tmp_path / "model")
    write_settings(folder, family="viewers", max_views=2)
    with pytest.raises(CheckpointError, match=r"has 0 viewer tokens"):
        load_encoder(folder)


def test_a_window_without_room_for_its_viewers_is_refused(models, tmp_path):
    lengths = {"document": 4, "query": 8}
    folder = copied(models("bert", "viewers"), tmp_path, family="viewers", max_views=VIEWS, lengths=lengths)
    with pytest.raises(CheckpointError, match="a window of 4 tokens is too short for its special tokens, 3 viewers"):
        load_encoder(folder)


# Laws of the windows, on tokens without a model. Text tokens are 0, 1, 2, ..., title tokens 200 on, prompt 300 on.

CLS, SEP, VIEWERS = 101, 102, 400


@st.composite
def texts(draw):
    counts = draw(st.lists(st.integers(0, 9), max_size=9))
    starts = np.cumsum([0, *counts])
    prompt, title = draw(st.integers(0, 3)), draw(st.integers(0, 12))
    if not starts[-1]:
        counts, starts = [title], np.array([0, title])  # a title alone speaks for the text
        ids, spans, title = np.arange(200, 200 + title), [NO_SPAN], 0
    else:
        ids = np.arange(starts[-1])
        sizes = [draw(st.integers(1, 30)) for _ in counts]
        begins = np.cumsum([0, *(size + 1 for size in sizes)])
        spans = [(int(begin), int(begin) + size) for begin, size in zip(begins, sizes, strict=False)]
    prefix = [*range(300, 300 + prompt), *range(200, 200 + title)]
    return TokenizedText(
        np.array(prefix, np.int32), ids.astype(np.int32), starts, spans, (0, 999), 5 if title else 0
    ), prompt  # fmt: skip


def frame_of(room, prompt, num_views, head, **options):
    viewers = np.arange(VIEWERS, VIEWERS + num_views, dtype=np.int32)
    return Frame(np.array(head), np.array([SEP]), room, prompt, Pooling.CLS, num_views, viewers, **options)


shapes = st.tuples(st.integers(8, 24), st.integers(1, 6), st.sampled_from([[], [CLS], [CLS, 103]]))


def check_windows(arranged, text, shape, own_snippet=False):
    """Every text token is in one window, none is too long, slots are rows, each row has some weight."""
    room, num_views, head = shape
    read = np.concatenate([window.ids for window in arranged.windows])
    assert sorted(read[np.isin(read, text.ids)].tolist()) == sorted(text.ids.tolist())
    # The first viewer stands in [CLS]'s place, unless viewers read their own part only.
    longest = room + num_views + (len(head) if own_snippet else len(head[1:])) + 1
    weights = np.zeros(arranged.num_rows)
    for window in arranged.windows:
        assert len(window.ids) == len(window.slots) <= longest
        assert ((window.slots >= CONTEXT) & (window.slots < arranged.num_rows)).all()
        np.add.at(weights, window.slots[window.slots >= 0], window.weights[window.slots >= 0])
    assert (weights > 0).all() and arranged.num_rows == len(arranged.spans) >= 1


@settings(max_examples=20)
@given(texts(), shapes, st.booleans())
def test_viewers_lose_no_token_and_stand_in_every_window(drawn, shape, own_snippet):
    text, prompt = drawn
    arranged = arrange_viewers(text, frame_of(shape[0], prompt, *shape[1:], own_snippet=own_snippet))
    check_windows(arranged, text, shape, own_snippet)
    _, num_views, head = shape
    lead = len(head[:1]) if own_snippet else 0
    stretches = {row * num_views // len(text.ids) for row in range(len(text.ids))}
    for window in arranged.windows:
        rest = len(window.ids) - lead - num_views
        assert window.ids[:lead].tolist() == head[:lead]
        assert window.ids[lead : lead + num_views].tolist() == list(range(VIEWERS, VIEWERS + num_views))
        # A viewer whose stretch is in other windows alone would read nothing here, and counts for nothing.
        here = set(window.scopes[lead + num_views :].tolist()) if own_snippet else set(range(num_views))
        counted = [slot if slot in here or slot not in stretches else CONTEXT for slot in range(num_views)]
        assert window.slots.tolist() == [*[CONTEXT] * lead, *counted, *[CONTEXT] * rest]
        assert window.positions.tolist() == [0] * (lead + num_views) + list(range(1, rest + 1))


@settings(max_examples=20)
@given(texts(), shapes, st.sampled_from([0.0, 2.0]))
def test_context_viewers_lose_no_token_and_no_viewer(drawn, shape, residual):
    text, prompt = drawn
    arranged = arrange_context_viewers(text, frame_of(shape[0], prompt, *shape[1:], residual=residual))
    check_windows(arranged, text, shape)
    assert len(arranged.spans) <= shape[1]
    seen = np.concatenate([window.ids[window.ids >= VIEWERS] for window in arranged.windows])
    assert set(seen.tolist()) == set(range(VIEWERS, VIEWERS + shape[1]))
    assert all(window.ids[0] >= VIEWERS and window.positions is None for window in arranged.windows)
    # Title and text follow each other, and every shown viewer that has a view stands right before a token of theirs.
    read = np.concatenate([window.ids for window in arranged.windows])
    body = [*range(200, 200 + int((text.prefix >= 200).sum() - prompt)), *text.ids.tolist()]
    assert [token for token in read.tolist() if token < 300 and token not in (CLS, 103, SEP)] == body


@settings(max_examples=20)
@given(texts(), shapes, st.sampled_from([0.5, 1.0, 4.0]))
def test_a_snippets_tokens_together_weigh_the_residual_times_what_its_viewers_do(drawn, shape, times):
    text, prompt = drawn
    arranged = arrange_context_viewers(text, frame_of(shape[0], prompt, *shape[1:], residual=times))
    weights = np.zeros((arranged.num_rows, 2))  # of tokens, of viewers
    for window in arranged.windows:
        rows = window.slots >= 0
        np.add.at(weights, (window.slots[rows], (window.ids[rows] >= VIEWERS).astype(int)), window.weights[rows])
    if len(text.ids):
        np.testing.assert_allclose(weights[:, 0], times * weights[:, 1], rtol=1e-6)
    else:
        assert weights[:, 0].tolist() == [0] and weights[0, 1] > 0


def arranged_by_hand(lengths, title_tokens, num_views, title_chars=4):
    """Context viewers over sentences of 10 characters with those numbers of tokens."""
    starts = np.cumsum([0, *lengths])
    spans = [(10 * row, 10 * row + 9) for row in range(len(lengths))]
    text = TokenizedText(
        np.arange(200, 200 + title_tokens, dtype=np.int32), np.arange(starts[-1], dtype=np.int32), starts, spans,
        (0, 99), title_chars,
    )  # fmt: skip
    return arrange_context_viewers(text, frame_of(30, 0, num_views, [CLS]))


def test_the_title_is_the_first_sentence():
    arranged = arranged_by_hand([2, 3], 2, 4)
    assert arranged.windows[0].ids.tolist() == [400, 200, 201, 401, 0, 1, 402, 2, 3, 4, 403, SEP]
    assert arranged.windows[0].slots.tolist() == [0, -1, -1, 1, -1, -1, 2, -1, -1, -1, -1, -1]
    assert arranged.spans == [NO_SPAN, (0, 9), (10, 19)]


def test_a_short_title_merges_with_the_first_sentence_where_views_are_few():
    # Title of 4 characters, sentences of 9: the title joins the first of them.
    arranged = arranged_by_hand([2, 3], 2, 2)
    assert arranged.windows[0].ids.tolist() == [400, 200, 201, 0, 1, 401, 2, 3, 4, SEP]
    assert arranged.spans == [(0, 9), (10, 19)]


def test_a_long_title_stays_alone_while_shorter_sentences_merge():
    arranged = arranged_by_hand([2, 3], 2, 2, title_chars=50)
    assert arranged.windows[0].ids.tolist() == [400, 200, 201, 401, 0, 1, 2, 3, 4, SEP]
    assert arranged.spans == [NO_SPAN, (0, 19)]


def test_a_sentence_without_tokens_takes_no_viewer_from_the_others():
    arranged = arranged_by_hand([2, 0, 1], 0, 4)
    assert arranged.windows[0].ids.tolist() == [400, 0, 1, 401, 2, 402, 403, SEP]
    assert arranged.spans == [(0, 9), (20, 29)]
