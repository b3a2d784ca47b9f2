"""Views whose vector is known are not encoded, in whichever family they are made."""

from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("torch")

from mvindex.encoder import load_encoder  # noqa: E402 - as above
from mvindex.encoder.checkpoint.families import parse_family  # noqa: E402 - as above
from mvindex.records import Document, no_progress  # noqa: E402 - as above
from mvindex_train.checkpoints import save_checkpoint  # noqa: E402 - as above
from tests.helpers.tiny_encoders import DOCUMENTS, FAMILIES, build  # noqa: E402 - as above
from tests.helpers.tiny_models import ATOL, make_model  # noqa: E402 - as above

pytestmark = pytest.mark.usefixtures("plain_arithmetic")

# The windows of these read parts that others do not.
OF_PARTS = ("snippets", "sentences", "splits", "context-viewers")
SENTENCES = [
    f"The {color} {thing} ran under the {place}."
    for color in ("red", "old", "new")
    for thing in ("cat", "dog", "house")
    for place in ("mat", "rug", "river")
]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("base"))


@pytest.fixture
def encoder_of(base, tmp_path):
    def load(family, **options):
        save_checkpoint(build(base, family, **options), tmp_path / "e", "card")
        return load_encoder(tmp_path / "e", device="cpu")

    return load


def known_of(encoder, documents):
    """Return the vectors of all views by their keys."""
    views, keys = encoder.encode_documents(documents), encoder.view_keys(documents)
    return dict(zip((key for own in keys for key in own), views.rows, strict=False)) if any(keys) else {}


def long_text(last):
    return Document("long", " ".join([*SENTENCES, last]), "the river")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_views_are_those_of_encoding_all(encoder_of, family):
    encoder = encoder_of(family, document_length=32)
    known = known_of(encoder, [*DOCUMENTS, long_text("He sat.")])
    documents, done = [long_text("She sat."), *DOCUMENTS[:2], Document("new", "was she red")], []
    expected, found = encoder.encode_documents(documents), encoder.encode_unknown(documents, known, done.append)
    assert found.starts.tolist() == expected.starts.tolist() and found.spans.tolist() == expected.spans.tolist()
    np.testing.assert_allclose(found.rows, expected.rows, atol=ATOL)
    assert sum(done) == len(documents)
    reused = np.zeros(len(found.rows), bool) if found.is_reused is None else found.is_reused
    of_old = slice(found.starts[1], found.starts[3])
    assert reused[found.starts[3] :].sum() == 0
    assert reused[of_old].all() == (not parse_family(family).pools_tokens)
    if family in OF_PARTS:
        own = reused[: found.starts[1]]
        assert own.any() and not own.all()


def test_only_windows_of_unknown_views_are_read(encoder_of, monkeypatch):
    encoder, read = encoder_of("sentences", document_length=32, max_views=64), []
    known, made = known_of(encoder, [long_text("He sat.")]), encoder._means
    monkeypatch.setattr(encoder, "_means", lambda arranged, *more: read.append(arranged) or made(arranged, *more))
    views = encoder.encode_unknown([long_text("She sat.")], known, no_progress)
    assert [each.num_windows.tolist() for each in read] == [[1]]
    assert views.is_reused.tolist() == [True] * len(SENTENCES) + [False]


def test_views_with_a_share_of_their_document_have_no_keys(encoder_of):
    encoder = encoder_of("snippets", document_share=0.25)
    assert encoder.view_keys(DOCUMENTS) == [[]] * len(DOCUMENTS)


def test_a_view_of_the_same_text_elsewhere_in_its_window_is_another(encoder_of):
    encoder = encoder_of("snippets", document_length=32)
    [first], [other] = (encoder.view_keys([Document("1", text)]) for text in ("He ran. It sat.", "It sat. He ran."))
    assert not set(first) & set(other)


def test_known_views_are_found_in_every_slice(encoder_of, monkeypatch):
    encoder = encoder_of("snippets", document_length=32)
    known = known_of(encoder, [long_text("He sat.")])
    documents = [long_text("She sat."), DOCUMENTS[0], long_text("He sat."), long_text("It sat.")]
    expected, done = encoder.encode_documents(documents), []
    monkeypatch.setattr("mvindex.encoder.function.SLICE_DOCUMENTS", 1)
    found = encoder.encode_unknown(documents, known, done.append)
    np.testing.assert_allclose(found.rows, expected.rows, atol=ATOL)
    own = [found.is_reused[begin:end] for begin, end in pairwise(found.starts.tolist())]
    assert [(each.any(), each.all()) for each in own] == [(True, False), (False, False), (True, True), (True, False)]
    assert sum(done) == len(documents)
