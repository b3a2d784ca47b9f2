"""Documents that other processes arrange, or encode on several devices, give the same bits as one process."""

import numpy as np
import pytest

pytest.importorskip("torch")

from mvindex.encoder import load_encoder  # noqa: E402 - only where torch is
from mvindex.encoder.checkpoint import read_checkpoint  # noqa: E402 - as above
from mvindex.encoder.devices import parse_devices  # noqa: E402 - as above
from mvindex.encoder.function import slices  # noqa: E402 - as above
from mvindex.encoder.transformer import TransformerEncoder  # noqa: E402 - as above
from mvindex.errors import ConfigError, EncoderError  # noqa: E402 - as above
from mvindex.records import Document  # noqa: E402 - as above

DOCUMENTS = [Document(str(number), f"The {word} sat. It ran.", "A title") for number, word in enumerate("abcdefghij")]


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr("mvindex.encoder.function.SLICE_DOCUMENTS", 4)
    monkeypatch.setattr("mvindex.encoder.arranging._DOCUMENTS_AT_ONCE", 3)


def equal(found, expected):
    for name in ("rows", "starts", "spans"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_two_devices_give_the_bits_of_one(small_slices):
    expected = load_encoder("minilm-views", device="cpu").encode_documents(DOCUMENTS)
    several, done = load_encoder("minilm-views", device="cpu,cpu"), []
    equal(several.encode_documents(DOCUMENTS, done.append), expected)
    assert done == [4, 4, 2]
    for worker in several._workers._workers:
        worker._process.kill()
    with pytest.raises(EncoderError, match=r"has ended \(exit -9\)"):
        several.encode_documents(DOCUMENTS)
    several.close()


def test_documents_arranged_ahead_give_the_same_bits(small_slices):
    encoder = TransformerEncoder(read_checkpoint("minilm-views"), "cpu")
    expected = encoder.encode_documents(DOCUMENTS)
    encoder._ahead_from = 1
    equal(encoder.encode_documents(DOCUMENTS), expected)
    encoder._arranging.close()


def test_the_error_of_another_process_is_of_its_class():
    several = load_encoder("minilm-views", device="cpu,cuda:99")
    with pytest.raises(ConfigError, match="cuda:99"):
        several.encode_documents(DOCUMENTS * 300)
    several.close()


def test_slices_end_where_there_are_many_documents_or_characters(monkeypatch):
    monkeypatch.setattr("mvindex.encoder.function.SLICE_DOCUMENTS", 3)
    monkeypatch.setattr("mvindex.encoder.function.SLICE_CHARS", 10)
    documents = [Document(str(size), "x" * size) for size in (1, 2, 3, 9, 1, 1)]
    assert [[each.id for each in cut] for cut in slices(documents)] == [["1", "2", "3"], ["9", "1"], ["1"]]


def test_devices_are_numbers_or_names():
    assert parse_devices("0, 1") == ["cuda:0", "cuda:1"]
    assert parse_devices("cpu,cuda:2") == ["cpu", "cuda:2"]
    with pytest.raises(ConfigError, match="expected numbers of GPUs"):
        parse_devices("0,gpu")
