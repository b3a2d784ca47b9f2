"""Views of a model that makes one vector of a text, and by what an index recognises it."""

import functools
from pathlib import Path

import numpy as np
import pytest

import mvindex
from mvindex.encoder import CallableEncoder, load_encoder
from mvindex.encoder.embedding import encoder as embedding
from mvindex.encoder.registry import as_encoder
from mvindex.errors import ConfigError, EncoderError
from mvindex.records import Document

TEXT = "The embargo began in 1973. It ended in 1974! Was it a shock?"


def letters(texts):
    """Counts of a, b, e and i."""
    return [[text.count(letter) for letter in "abei"] for text in texts]


class Model:
    """A function that remembers what it was called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, texts):
        self.calls.append(list(texts))
        return letters(texts)


def test_every_snippet_is_embedded_behind_the_title():
    model = Model()
    encoder = load_encoder(model)
    documents = [
        mvindex.Document("a", TEXT, "Oil"),
        mvindex.Document("b", "", "Only a title"),
        mvindex.Document("c", "x"),
    ]
    views = encoder.encode_documents(documents)
    [texts] = model.calls
    parts = ["The embargo began in 1973.", "It ended in 1974!", "Was it a shock?"]
    assert texts == [*(f"Oil\n{part}" for part in parts), "Only a title", "x"]
    assert views.starts.tolist() == [0, 3, 4, 5]
    assert views.spans.tolist() == [[0, 26], [27, 44], [45, 60], [-1, -1], [0, 1]]
    assert views.rows.tolist() == letters(texts)


def test_single_is_one_view_of_the_whole_text():
    model = Model()
    views = load_encoder(model, family="single").encode_documents([mvindex.Document("a", TEXT, "Oil")])
    assert model.calls == [[f"Oil\n{TEXT}"]]
    assert views.spans.tolist() == [[0, len(TEXT)]]


@pytest.mark.parametrize(("max_views", "count"), [(1, 1), (2, 2), (8, 3), ("auto", 3)])
def test_there_are_no_more_views_than_were_asked_for(max_views, count):
    encoder = load_encoder(letters, max_views=max_views)
    assert len(encoder.encode_documents([mvindex.Document("a", TEXT)]).rows) == count
    assert encoder.max_views == (256 if max_views == "auto" else max_views)


def test_a_long_text_is_the_mean_of_its_pieces(monkeypatch):
    model = Model()
    model.max_chars = 0
    encoder = load_encoder(model, family="single")
    monkeypatch.setattr(type(encoder.embedder), "max_chars", 8)
    views = encoder.encode_documents([mvindex.Document("a", "aaaa bb eeeeee")])
    assert model.calls == [["aaaa bb", " eeeeee"]]
    # (4, 2, 0, 0) and (0, 0, 6, 0), both of 7 characters: half of each, scaled to the mean of their lengths.
    mean = np.array([2.0, 1.0, 3.0, 0.0])
    expected = mean * ((20**0.5 + 6) / 2) / np.linalg.norm(mean)
    assert views.rows[0] == pytest.approx(expected)


def test_the_model_gets_a_bounded_number_of_texts_and_progress_counts_documents(monkeypatch):
    monkeypatch.setattr(embedding, "TEXTS_AT_ONCE", 4)
    model, done = Model(), []
    documents = [mvindex.Document(str(number), TEXT) for number in range(3)]
    views = load_encoder(model).encode_documents(documents, done.append)
    assert [len(call) for call in model.calls] == [4, 4, 1]
    assert done == [1, 1, 1]
    assert views.rows.tolist() == letters(["The embargo began in 1973.", "It ended in 1974!", "Was it a shock?"] * 3)


def test_queries_go_to_the_query_function():
    encoder = load_encoder(letters, query_function=lambda texts: [[9, 9, 9, 9] for _ in texts])
    assert encoder.encode_queries(["abe"]).tolist() == [[9, 9, 9, 9]]
    assert encoder.encode_queries([]).shape == (0, 4)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.ones((1, 2, 3)), r"shape \(1, 2, 3\).*CallableEncoder"),
        (np.ones(3), r"shape \(3,\)"),
        (np.ones((2, 3)), "a vector for each of 1 texts"),
        (np.ones((1, 0)), r"shape \(1, 0\)"),
        ([[1, np.nan]], "finite numbers.*A short text"),
        ([["a"]], "expected numbers, got <U1"),
        ([[1, 2], [1]], "expected numbers of one shape"),
        (None, "expected numbers, got None"),
    ],
)
def test_a_wrong_result_is_named(result, message):
    with pytest.raises(EncoderError, match=message):
        load_encoder(lambda texts: result, name="fixed").dim  # noqa: B018 - the model is called


def test_another_number_of_dimensions_later_is_refused():
    encoder = load_encoder(lambda texts: np.ones((len(texts), 1 + len(texts))), name="growing")
    encoder.encode_queries(["a"])
    with pytest.raises(EncoderError, match="growing: expected vectors of 2 dimensions, got 3"):
        encoder.encode_queries(["a", "b"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "viewers"}, "family: expected 'snippets' or 'single'.*'viewers'"),
        ({"max_views": 0}, "max_views"),
        ({"max_views": True}, "max_views"),
        ({"splitter": "x"}, "splitter"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        load_encoder(letters, **options)


def test_what_is_no_encoder_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="expected a name, .* got int"):
        mvindex.create(tmp_path / "a.mvx", encoder=3)
    with pytest.raises(ConfigError, match="belong to"):
        load_encoder("minilm", name="x")
    with pytest.raises(ConfigError, match="an Encoder makes its own views"):
        mvindex.create(tmp_path / "a.mvx", encoder=load_encoder(letters), family="single")
    with pytest.raises(ConfigError, match="expected an encoder="):
        mvindex.create(tmp_path / "a.mvx", dim=3, max_views=2)
    assert not (tmp_path / "a.mvx").exists()


def names():
    here = __name__
    yield letters, f"{here}.letters"
    yield functools.partial(letters), f"partial({here}.letters)"
    yield Model(), f"{here}.Model"
    yield (lambda texts: letters(texts)), f"{here}.names.<locals>.<lambda>"


@pytest.mark.parametrize(("function", "name"), list(names()))
def test_a_function_is_recorded_by_its_qualified_name(function, name):
    encoder = load_encoder(function)
    assert encoder.spec["source"] == name
    assert encoder.fingerprint == f"snippets-8:parts-1:function:{name}:4"
    assert load_encoder(function, name="mine").fingerprint == "snippets-8:parts-1:function:mine:4"


def test_an_index_of_a_function_opens_with_it_and_makes_views_as_before(tmp_path: Path):
    with mvindex.create(tmp_path / "a.mvx", encoder=letters, max_views=2) as index:
        index.add([TEXT])
    with mvindex.open(tmp_path / "a.mvx", encoder=letters) as index:
        index.add([f"{TEXT} Yes."])
        assert (len(index), index.info().views) == (2, 4)
        assert index.search("It ended in 1974", mode="dense")[0].snippet is not None
    with (
        mvindex.open(tmp_path / "a.mvx") as index,
        pytest.raises(ConfigError, match=r"letters'.*mvindex\.open\(path, enc"),
    ):
        index.search("oil")


def test_another_function_is_refused_and_both_are_named(tmp_path: Path):
    mvindex.create(tmp_path / "a.mvx", encoder=letters).close()
    with pytest.raises(ConfigError, match="expected the encoder .*letters.*got .*<lambda>"):
        mvindex.open(tmp_path / "a.mvx", encoder=lambda texts: letters(texts))


def test_another_function_of_the_same_name_is_refused_by_its_vectors(tmp_path: Path):
    first, second = (lambda texts: letters(texts)), (lambda texts: letters([text.upper() for text in texts]))
    assert first.__qualname__ == second.__qualname__
    third = lambda texts: [[len(text), 1, 0, 0] for text in texts]  # noqa: E731 - a lambda is the point
    mvindex.create(tmp_path / "a.mvx", encoder=first).close()
    mvindex.open(tmp_path / "a.mvx", encoder=first).close()
    for other in (second, third):
        with pytest.raises(ConfigError, match="which gives other vectors"):
            mvindex.open(tmp_path / "a.mvx", encoder=other)


def test_a_callable_encoder_still_makes_its_own_views(tmp_path: Path):
    def pairs(texts):
        return np.array([[[len(text), 1.0], [1.0, 1.0]] for text in texts])

    made = mvindex.CallableEncoder(pairs, query_function=lambda texts: [[1.0, 1.0]] * len(texts), name="pairs")
    with mvindex.create(tmp_path / "a.mvx", encoder=made) as index:
        index.add([TEXT])
        assert index.info().views == 2


def two_views(texts):
    return np.ones((len(texts), 2, 3))


def ragged_views(texts):
    return [np.ones((1 + number % 2, 3)) for number, _ in enumerate(texts)]


@pytest.mark.parametrize("function", [two_views, ragged_views])
def test_a_function_that_makes_several_vectors_of_a_text_makes_the_views_itself(function):
    encoder = as_encoder(function)
    assert isinstance(encoder, CallableEncoder)
    assert encoder.encode_documents([Document("a", TEXT), Document("b", TEXT)]).starts.tolist()[-1] in (3, 4)
    assert not isinstance(as_encoder(letters), CallableEncoder)
