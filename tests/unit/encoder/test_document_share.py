"""Views that have a share of their document's mean."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")

from mvindex.encoder import encoder_from_spec, load_encoder  # noqa: E402 - as above
from mvindex.encoder.checkpoint import parse_family, read_checkpoint  # noqa: E402 - only where torch is
from mvindex.errors import CheckpointError  # noqa: E402 - as above
from mvindex_train.checkpoints import save_checkpoint  # noqa: E402 - as above
from tests.helpers.tiny_encoders import DOCUMENTS, build  # noqa: E402 - as above
from tests.helpers.tiny_models import ATOL, make_model  # noqa: E402 - as above

pytestmark = pytest.mark.usefixtures("plain_arithmetic")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("base"))


def shared(folder, base, share):
    """Save the base as a checkpoint with this share."""
    encoder = build(base, "snippets", document_share=share)
    save_checkpoint(encoder, folder, "card")
    return encoder


def with_share(views, share):
    """Return the rows in plain code, one document after the other."""
    rows = []
    for begin, end in zip(views.starts[:-1], views.starts[1:], strict=True):
        own = views.rows[begin:end].astype(np.float64)
        mean = own.mean(axis=0)
        mixed = own + share * mean / np.linalg.norm(mean)
        rows.extend(mixed / np.linalg.norm(mixed, axis=1, keepdims=True))
    return np.array(rows)


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_each_view_has_the_share_of_its_documents_mean_in_training_too(base, tmp_path, share):
    trained = shared(tmp_path / "e", base, share).eval()
    shared(tmp_path / "plain", base, 0.0)
    plain = load_encoder(tmp_path / "plain", device="cpu")
    expected = with_share(plain.encode_documents(DOCUMENTS), share)
    encoder = load_encoder(tmp_path / "e", device="cpu")
    found = encoder.encode_documents(DOCUMENTS)
    np.testing.assert_allclose(found.rows, expected, atol=ATOL)
    np.testing.assert_allclose(trained.encode_documents(DOCUMENTS).rows.detach().numpy(), expected, atol=ATOL)
    np.testing.assert_array_equal(encoder.encode_queries(["a cat"]), plain.encode_queries(["a cat"]))
    assert len(expected) > len(DOCUMENTS) and not np.allclose(found.rows, plain.encode_documents(DOCUMENTS).rows)


def test_an_encoder_with_a_share_is_another_one_and_is_found_again(base, tmp_path):
    fingerprints = set()
    for share in (0.0, 0.25, 0.5):
        shared(tmp_path / str(share), base, share)
        encoder = load_encoder(tmp_path / str(share), device="cpu")
        assert encoder_from_spec(encoder.spec, "cpu").fingerprint == encoder.fingerprint
        fingerprints.add(encoder.fingerprint)
    assert len(fingerprints) == 3
    # Another family than the checkpoint's own has no share.
    assert read_checkpoint(tmp_path / "0.5", parse_family("sentences")).settings.document_share == 0


@pytest.mark.parametrize("value", [-0.1, "much", True])
def test_a_share_that_is_none_is_refused(base, tmp_path, value):
    shared(tmp_path / "e", base, 0.25)
    path = tmp_path / "e" / "mvindex.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"document_share": value}))
    with pytest.raises(CheckpointError, match="document_share"):
        load_encoder(tmp_path / "e", device="cpu")
