"""Every family but those of viewers: what is read together, written out by hand, and which states make which view."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.encoder import load_encoder
from mvindex.encoder.checkpoint.families import FIRST_K, KMEANS, POLY, SINGLE, SNIPPETS, SPLITS
from mvindex.encoder.checkpoint.families import SENTENCES as SENTENCES_FAMILY
from mvindex.encoder.checkpoint.settings import Pooling
from mvindex.encoder.families import load_arrange
from mvindex.encoder.families.windows import CONTEXT, Frame
from mvindex.encoder.text import NO_SPAN, TokenizedText
from mvindex.errors import CheckpointError, ConfigError
from mvindex.records import Document
from tests.helpers.tiny_models import KINDS, close, copied, lloyd, make_kind, mean, reference_of, torch, unit

pytestmark = pytest.mark.usefixtures("plain_arithmetic")
# What depends on positions and attention is checked on every kind of model, pooling alone on the two that differ.
TWO_KINDS = ["bert", "roberta"]
SENTENCES = ["The cat sat on the mat.", " It ran.", " Was he red or blue?"]
TEXT = "".join(SENTENCES)
SPANS = [[0, 23], [24, 31], [32, 51]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A function of kind: the folder of such a model, made once."""
    made = {}

    def model(kind):
        if kind not in made:
            made[kind] = make_kind(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return model


def inputs(reference, *parts):
    """One input with its special tokens, and where each part's tokens are in it."""
    ids, places = [reference.cls], []
    for part in parts:
        tokens = reference.tokens(part)
        places.append(range(len(ids), len(ids) + len(tokens)))
        ids += tokens
    return [*ids, reference.sep], places


def encoded(folder, family, document, max_views=None):
    return load_encoder(folder, family=family, max_views=max_views).encode_documents([document])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("title", ["", "Dog"])
def test_snippets_are_means_of_their_tokens_in_one_input(models, kind, title):
    reference = reference_of(models(kind))
    first = "\n" + SENTENCES[0] if title else SENTENCES[0]
    ids, (_, *places) = inputs(reference, title, first, *SENTENCES[1:])
    states = reference.states(ids)
    views = encoded(models(kind), "snippets", Document("1", TEXT, title))
    close(views.rows, unit([mean(states[place]) for place in places]))
    assert views.spans.tolist() == SPANS


@pytest.mark.parametrize("kind", TWO_KINDS)
def test_single_is_the_mean_of_every_state(models, kind):
    reference = reference_of(models(kind))
    ids, _ = inputs(reference, "Dog", "\n" + TEXT)
    close(encoded(models(kind), "single", Document("1", TEXT, "Dog")).rows, unit([mean(reference.states(ids))]))


@pytest.mark.parametrize("kind", TWO_KINDS)
def test_first_k_are_the_first_states_with_the_special_token(models, kind):
    reference = reference_of(models(kind))
    ids, _ = inputs(reference, "Dog", "\n" + TEXT)
    views = encoded(models(kind), "first-k", Document("1", TEXT, "Dog"), 5)
    close(views.rows, unit(reference.states(ids)[:5]))
    assert views.spans.tolist() == [[0, len(TEXT)]] * 5


def test_a_short_input_has_fewer_first_states(models):
    reference = reference_of(models("bert"))
    ids, _ = inputs(reference, "the cat")
    encoder = load_encoder(models("bert"), family="first-k")
    views = encoder.encode_documents([Document("1", "the cat"), Document("2", TEXT), Document("3", "")])
    assert np.diff(views.starts).tolist() == [4, 8, 2]
    close(views.rows[:4], unit(reference.states(ids)))
    close(views.rows[12:], unit(reference.states([reference.cls, reference.sep])))


def test_first_k_reads_one_window_only(models):
    reference = reference_of(models("bert"))
    text = "the cat sat on a mat under it " * 9  # one sentence, cut where the window ends
    ids = [reference.cls, *reference.tokens(text)[:38], reference.sep]
    close(encoded(models("bert"), "first-k", Document("1", text)).rows, unit(reference.states(ids)[:8]))


@pytest.mark.parametrize("kind", KINDS)
def test_kmeans_clusters_the_tokens_of_title_and_text(models, kind):
    reference = reference_of(models(kind))
    ids, (title, text) = inputs(reference, "Dog", "\n" + TEXT)
    states = reference.states(ids)
    centroids, _, margin = lloyd(list(states[[*title, *text]]), 4)
    assert margin > 1e-4
    close(encoded(models(kind), "kmeans", Document("1", TEXT, "Dog")).rows, unit(centroids))


def test_kmeans_leaves_the_prompt_out_and_takes_tokens_as_they_are_where_they_are_few(models, tmp_path):
    folder = copied(models("bert"), tmp_path, family="kmeans", max_views=4, prompts={"document": "it was: "})
    reference = reference_of(folder)
    ids, (_, text) = inputs(reference, "it was:", " red cat")
    states = reference.states(ids)
    encoder = load_encoder(folder)
    views = encoder.encode_documents([Document("1", "red cat"), Document("2", "\u0301"), Document("3", TEXT)])
    assert np.diff(views.starts).tolist() == [2, 1, 4]
    close(views.rows[:2], unit(states[list(text)]))
    # Without any token there is the first special token.
    ids, _ = inputs(reference, "it was:")
    close(views.rows[2:3], unit(reference.states(ids)[:1]))


def test_kmeans_clusters_the_tokens_of_all_windows_together(models, tmp_path):
    folder = copied(models("bert"), tmp_path, family="kmeans", max_views=3, lengths={"document": 10, "query": 10})
    reference = reference_of(folder)
    tokens = []
    for part in (SENTENCES[0], SENTENCES[1], "".join(SENTENCES[2:])):
        ids, [places] = inputs(reference, part)
        assert len(ids) <= 10
        tokens += list(reference.states(ids)[list(places)])
    centroids, _, margin = lloyd(tokens, 3)
    assert margin > 1e-4
    close(load_encoder(folder).encode_documents([Document("1", TEXT)]).rows, unit(centroids))


@pytest.mark.parametrize("kind", TWO_KINDS)
def test_each_code_of_poly_attends_to_all_tokens_with_special_ones(models, tmp_path, kind):
    save_file = pytest.importorskip("safetensors.torch").save_file
    folder = copied(models(kind), tmp_path, family="poly", max_views=3)
    codes = torch.randn(4, 32, generator=torch.Generator().manual_seed(5))
    save_file({"codes": codes}, folder / "views.safetensors")
    reference = reference_of(folder)
    documents = [Document("1", TEXT, "Dog"), Document("2", "the cat"), Document("3", "")]
    parts = [["Dog", "\n" + TEXT], ["the cat"], []]
    views = load_encoder(folder).encode_documents(documents)
    assert np.diff(views.starts).tolist() == [3, 3, 3]
    for number, texts in enumerate(parts):
        states = reference.states(inputs(reference, *texts)[0])
        for slot, code in enumerate(codes[:3].double().numpy()):
            scores = np.array([code @ state for state in states])
            weights = np.exp(scores - scores.max())
            view = sum(weight * state for weight, state in zip(weights, states, strict=True)) / weights.sum()
            # The softmax turns the last digits of scores of up to 30 into digits of the weights.
            close(views.rows[3 * number + slot], unit(view), atol=4e-6)


@pytest.mark.parametrize("family", ["poly", "first-k"])
def test_the_first_views_are_the_same_however_many_follow(models, tmp_path, family):
    save_file = pytest.importorskip("safetensors.torch").save_file
    folder = copied(models("bert"), tmp_path, family=family, max_views=8)
    save_file({"codes": torch.randn(8, 32, generator=torch.Generator().manual_seed(5))}, folder / "views.safetensors")
    documents = [Document("1", TEXT, "Dog"), Document("2", "the cat"), Document("3", "")]
    whole = load_encoder(folder).encode_documents(documents)
    for size in (1, 2, 4):
        some = load_encoder(folder, max_views=size).encode_documents(documents)
        for number in range(len(documents)):
            own = some.rows[some.starts[number] : some.starts[number + 1]]
            full = whole.rows[whole.starts[number] : whole.starts[number + 1]]
            close(own, full[:size])


def test_poly_without_fitting_codes_is_refused_and_its_weights_serve_other_families(models, tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    folder = copied(models("bert"), tmp_path, family="poly", max_views=3)
    with pytest.raises(CheckpointError, match="codes of shape None; expected 3 rows of 32"):
        load_encoder(folder)
    for shape in ((2, 32), (3, 16), (96,)):
        save_file({"codes": torch.ones(shape)}, folder / "views.safetensors")
        with pytest.raises(CheckpointError, match="expected 3 rows of 32, one per view of the family 'poly'"):
            load_encoder(folder)
    save_file({"codes": torch.ones(3, 32)}, folder / "views.safetensors")
    with pytest.raises(CheckpointError, match=r"codes of shape \(3, 32\); expected 4 rows"):
        load_encoder(folder, max_views=4)
    close(
        encoded(folder, "single", Document("1", TEXT)).rows,
        encoded(models("bert"), "single", Document("1", TEXT)).rows,
    )


@pytest.mark.parametrize("family", ["poly", "viewers", "context-viewers"])
def test_a_family_with_weights_of_its_own_cannot_be_asked_of_other_weights(models, family):
    with pytest.raises(ConfigError, match=f"was not trained as '{family}'.*mvindex train"):
        load_encoder(models("bert"), family=family)


@pytest.mark.parametrize("kind", TWO_KINDS)
def test_sentences_are_read_apart_behind_the_title(models, kind):
    reference = reference_of(models(kind))
    first = ["\n" + SENTENCES[0], *SENTENCES[1:]]
    expected = [mean(reference.states(inputs(reference, "Dog", part)[0])) for part in first]
    views = encoded(models(kind), "sentences", Document("1", TEXT, "Dog"))
    close(views.rows, unit(expected))
    assert views.spans.tolist() == SPANS


@pytest.mark.parametrize("kind", TWO_KINDS)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_splits_are_equal_stretches_of_tokens_read_apart(models, tmp_path, kind, pooling):
    folder = copied(models(kind), tmp_path, family="splits", max_views=3, pooling=pooling)
    reference = reference_of(folder)
    tokens = reference.tokens(TEXT)
    m = len(tokens)
    cuts = [0, m // 3, 2 * m // 3, m]
    states = [
        reference.states([reference.cls, *tokens[begin:end], reference.sep])
        for begin, end in zip(cuts, cuts[1:], strict=False)
    ]
    views = load_encoder(folder).encode_documents([Document("1", TEXT)])
    close(views.rows, unit([mean(part) if pooling == "mean" else part[0] for part in states]))
    assert views.spans.tolist() == [[-1, -1]] * 3


CHANGED = SENTENCES[0] + " She sat." + SENTENCES[2]


def changed_views(folder, family):
    """Which of three views change when the second sentence does."""
    before = encoded(folder, family, Document("1", TEXT, "Dog"), 3).rows
    after = encoded(folder, family, Document("1", CHANGED, "Dog"), 3).rows
    return (np.abs(before - after).max(axis=1) > 1e-3).tolist()


@pytest.mark.parametrize(
    ("family", "expected"), [("sentences", [False, True, False]), ("snippets", [True, True, True])]
)
def test_a_changed_sentence_changes_other_views_only_where_they_are_read_together(models, family, expected):
    assert changed_views(models("bert"), family) == expected


def test_a_changed_stretch_changes_no_other_split(models):
    words = "the cat sat on a mat he ran under".split()
    before = encoded(models("bert"), "splits", Document("1", " ".join(words), "Dog"), 3).rows
    after = encoded(models("bert"), "splits", Document("1", " ".join([*words[:4], "dog", *words[5:]]), "Dog"), 3).rows
    assert (np.abs(before - after).max(axis=1) > 1e-3).tolist() == [False, True, False]


def test_a_long_sentence_does_not_shorten_the_title_of_the_others(models, tmp_path):
    folder = copied(models("bert"), tmp_path, family="sentences", max_views=8, lengths={"document": 14, "query": 14})
    title = "the old red house on the river"
    short = encoded(folder, None, Document("1", "It ran. He sat.", title)).rows
    long = encoded(folder, None, Document("1", "It ran. " + "the cat sat on a mat and " * 2, title)).rows
    close(short[0], long[0])


def test_sentences_and_splits_without_text_are_their_title(models):
    single = encoded(models("bert"), "single", Document("1", "", "Dog"))
    for family in ("sentences", "splits"):
        views = encoded(models("bert"), family, Document("1", "", "Dog"))
        close(views.rows, single.rows)
        assert views.spans.tolist() == [[-1, -1]]


# Laws of the windows, on tokens without a model. Text tokens are 0, 1, 2, ..., title tokens 200 on, prompt 300 on.

CLS, SEP = 101, 102
SHOWS_ALL = [SNIPPETS, SINGLE, POLY, KMEANS, SENTENCES_FAMILY, SPLITS]


@st.composite
def texts(draw):
    counts = draw(st.lists(st.integers(0, 9), max_size=9))
    starts = np.cumsum([0, *counts])
    prompt, title = draw(st.integers(0, 3)), draw(st.integers(0, 12))
    if not starts[-1]:
        starts, ids, spans, title = np.array([0, title]), np.arange(title), [NO_SPAN], 0
    else:
        ids = np.arange(starts[-1])
        sizes = [draw(st.integers(1, 30)) for _ in counts]
        begins = np.cumsum([0, *(size + 1 for size in sizes)])
        spans = [(int(begin), int(begin) + size) for begin, size in zip(begins, sizes, strict=False)]
    prefix = [*range(300, 300 + prompt), *range(200, 200 + title)]
    text = TokenizedText(np.array(prefix, np.int32), ids.astype(np.int32), starts, spans, (0, 999), 5)
    return text, prompt


shapes = st.tuples(
    st.integers(8, 24), st.integers(1, 6), st.sampled_from([[], [CLS], [CLS, 103]]), st.sampled_from(list(Pooling))
)


def framed(prompt, shape):
    room, num_views, head, pooling = shape
    return Frame(np.array(head, np.int32), np.array([SEP], np.int32), room, prompt, pooling, num_views)


@pytest.mark.parametrize("family", [*SHOWS_ALL, FIRST_K], ids=lambda family: family.name)
@settings(max_examples=20)
@given(drawn=texts(), shape=shapes)
def test_no_token_is_lost_or_doubled_and_every_row_has_a_state(family, drawn, shape):
    text, prompt = drawn
    frame = framed(prompt, shape)
    arranged = load_arrange(family)(text, frame)
    counted = np.zeros(arranged.num_rows, int)
    for window in arranged.windows:
        assert len(window.ids) == len(window.slots) <= shape[0] + len(shape[2]) + 1
        assert ((window.slots >= CONTEXT) & (window.slots < arranged.num_rows)).all()
        np.add.at(counted, window.slots[window.slots >= 0], 1)
    assert (counted > 0).all() and len(arranged.spans) >= 1
    if family in SHOWS_ALL:
        read = np.concatenate([window.ids for window in arranged.windows])
        assert sorted(read[read < 100].tolist()) == text.ids.tolist()
    if family in (POLY, KMEANS):
        assert (counted == 1).all()  # a row per token


@settings(max_examples=20)
@given(texts(), shapes)
def test_kmeans_has_a_row_for_each_token_of_title_and_text_and_no_other(drawn, shape):
    text, prompt = drawn
    arranged = load_arrange(KMEANS)(text, framed(prompt, shape))
    chosen = np.concatenate([window.ids[window.slots >= 0] for window in arranged.windows])
    others = np.concatenate([window.ids[window.slots < 0] for window in arranged.windows])
    if len(text.ids):
        assert sorted(chosen[chosen < 100].tolist()) == text.ids.tolist()
        assert not np.isin(chosen, [CLS, 103, SEP]).any() and not (chosen >= 300).any()
        assert np.isin(others, [CLS, 103, SEP, *range(300, 310)]).all()
        assert len(arranged.spans) == min(shape[1], len(chosen))
    else:
        assert len(chosen) == 1 == len(arranged.spans)


@settings(max_examples=20)
@given(texts(), shapes)
def test_splits_differ_by_one_token_at_most(drawn, shape):
    text, prompt = drawn
    arranged = load_arrange(SPLITS)(text, framed(prompt, shape))
    sizes = np.zeros(arranged.num_rows, int)
    for window in arranged.windows:
        slot = window.slots.max()
        sizes[slot] += int((window.ids < 100).sum())
    assert sizes.sum() == len(text.ids) and sizes.max() - sizes.min() <= 1
    assert len(sizes) == min(shape[1], max(len(text.ids), 1))
