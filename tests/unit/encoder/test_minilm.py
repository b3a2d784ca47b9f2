"""The packaged all-MiniLM-L6-v2: against a direct computation, and whether its vectors mean anything."""

import numpy as np
import pytest

from mvindex.corpus.text.sentences import split_snippets
from mvindex.encoder import encoder_from_spec, load_encoder
from mvindex.encoder.checkpoint import read_checkpoint
from mvindex.records import Document

pytestmark = pytest.mark.needs("minilm")

TEXT = (
    "The oil crisis began in October 1973. Members of OPEC proclaimed an embargo! "
    'By its end, in March 1974, the price had risen from US$3 per barrel to nearly $12; was it a "shock"?'
)
# bf16 keeps 8 bits; through 6 layers that turns a vector by a cosine of less than a thousandth.
BF16_COSINE = 0.999


@pytest.fixture(scope="module")
def encoder():
    return load_encoder("minilm")


@pytest.fixture(scope="module")
def states_of(encoder):
    """Last hidden states of a whole text and the character offsets of its tokens, straight from transformers."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = read_checkpoint("minilm").folder
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()

    def compute(text):
        inputs = tokenizer(text, return_tensors="pt", return_offsets_mapping=True, truncation=False, padding=False)
        offsets = inputs.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            return model(**inputs).last_hidden_state[0].double().numpy(), offsets

    return compute


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def best_by_query(encoder, queries, texts):
    """Return for each query the position of the text whose best view scores highest."""
    views = encoder.encode_documents([Document(str(number), text) for number, text in enumerate(texts)])
    scores = encoder.encode_queries(queries) @ views.rows.T
    return np.maximum.reduceat(scores, views.starts[:-1], axis=1).argmax(axis=1).tolist()


def test_what_it_is(encoder):
    assert (encoder.dim, encoder.max_views) == (384, 8)
    spec = encoder.spec
    assert (spec["source"], spec["family"], spec["similarity"]) == ("minilm", "snippets", "cosine")
    assert encoder_from_spec(spec).fingerprint == encoder.fingerprint


ADAPTERS = ("minilm-views", "minilm-snippets")


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_trained_encoders_have_names_of_their_own_and_one_is_the_default(encoder, name):
    trained = load_encoder(name)
    assert (trained.spec["source"], trained.spec["family"], trained.max_views) == (name, "snippets", 8)
    assert trained.fingerprint != encoder.fingerprint
    assert encoder_from_spec(trained.spec).fingerprint == trained.fingerprint
    assert (load_encoder().fingerprint == trained.fingerprint) is (name == "minilm-views")


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_adapter_is_the_one_that_its_card_speaks_of(encoder, name):
    checkpoint = read_checkpoint(name)
    card = (checkpoint.folder / "README.md").read_text(encoding="utf-8")
    assert checkpoint.weights["adapter_model.safetensors"] in card
    assert checkpoint.base.fingerprint == encoder.fingerprint
    rows = load_encoder(name).encode_documents([Document("1", TEXT)]).rows
    cosines = np.sum(rows * encoder.encode_documents([Document("1", TEXT)]).rows, axis=1)
    assert np.all(cosines > 0.5) and np.all(cosines < 0.99)


def test_snippets_equal_a_direct_computation(encoder, states_of):
    title = "1973 oil crisis"
    states, offsets = states_of(f"{title}\n{TEXT}")
    shift = len(title) + 1
    expected = []
    for begin, end in split_snippets(TEXT, 8):
        inside = [begin + shift <= first < end + shift and last > first for first, last in offsets]
        expected.append(states[inside].mean(axis=0))
    views = encoder.encode_documents([Document("1", TEXT, title)])
    assert len(views.rows) == len(expected) == 3
    assert (views.rows * unit(np.array(expected))).sum(axis=1).min() > BF16_COSINE


def test_single_and_queries_equal_a_direct_computation(encoder, states_of):
    expected = unit(states_of(TEXT)[0].mean(axis=0))
    [row] = load_encoder("minilm", family="single").encode_documents([Document("1", TEXT)]).rows
    assert row @ expected > BF16_COSINE
    # Queries are fp32 on any machine.
    np.testing.assert_allclose(encoder.encode_queries([TEXT])[0], expected, atol=1e-5)


def test_a_question_finds_the_text_that_answers_it(encoder):
    texts = [
        "Photosynthesis turns light into chemical energy. It takes place in the chloroplasts of plants.",
        "The Norman dynasty had a major political impact on medieval Europe. They conquered England in 1066.",
        "Interest rates were raised again by the central bank. Inflation had reached nine per cent.",
        "Penalty shoot-outs decide a drawn cup final. The goalkeeper may not leave the line before the kick.",
    ]
    questions = ["How do plants make energy from the sun?", "Who invaded England?", "Why did prices rise?",
                 "What happens when a football match is a draw?"]  # fmt: skip
    assert best_by_query(encoder, questions, texts) == [0, 1, 2, 3]


def test_a_question_is_won_by_the_view_that_answers_it(encoder):
    text = (
        "Marie Curie was born in Warsaw in 1867. She discovered radium together with her husband Pierre. "
        "Their daughter Irene also won a Nobel Prize in chemistry."
    )
    views = encoder.encode_documents([Document("1", text)])
    queries = encoder.encode_queries(
        ["Where was she born?", "Which element did she find?", "Did her daughter win a Nobel Prize?"]
    )
    assert (queries @ views.rows.T).argmax(axis=1).tolist() == [0, 1, 2]


def test_the_end_of_a_long_text_is_not_lost(encoder):
    filler = "The committee met on Tuesday and approved the minutes of the last meeting. " * 60
    text = filler + "The secret ingredient of the sauce is smoked paprika."
    views = encoder.encode_documents([Document("1", text)])
    best = int((encoder.encode_queries(["What is in the sauce?"]) @ views.rows.T).argmax())
    begin, end = views.spans[best]
    assert "smoked paprika" in text[begin:end]
    assert best == len(views.rows) - 1
