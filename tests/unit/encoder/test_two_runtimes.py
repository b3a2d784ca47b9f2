"""Forms of encoders and two versions of ONNX Runtime: the light form is read by both, any other one is made again."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

from mvindex.encoder import load_encoder  # noqa: E402 - only where torch is
from mvindex.encoder.checkpoint import read_checkpoint  # noqa: E402 - as above
from mvindex.encoder.onnx_cache import OnnxForm, find_form  # noqa: E402 - as above
from mvindex.encoder.onnx_export import make_form  # noqa: E402 - as above
from mvindex.encoder.transformer import TransformerEncoder  # noqa: E402 - as above
from mvindex.records import Document  # noqa: E402 - as above
from tests.helpers.tiny_models import make_model  # noqa: E402 - as above

pytestmark = [pytest.mark.full, pytest.mark.needs("other-onnxruntime")]

ROOT = Path(__file__).parents[3]
TEXTS = [
    "The oil crisis began in October 1973. Prices rose to $12.",
    "Plants turn light into sugar. " * 40,
    "a",
]
QUERIES = ["when did the embargo begin?", "how do plants make energy?", ""]
# Another order of fp32 sums moves an input to the next level here and there; an empty text, of two tokens, most: .9990.
LEAST_COSINE = 0.998

ENCODE = """
import json, sys
import numpy as np, onnxruntime
from mvindex import Document
from mvindex.encoder import load_encoder
texts, queries = json.loads(sys.argv[2])
encoder = load_encoder(device="cpu")
views = encoder.encode_documents([Document(str(number), text) for number, text in enumerate(texts)])
np.savez(sys.argv[1], rows=views.rows, queries=encoder.encode_queries(queries))
print(onnxruntime.__version__)
"""
FIND = """
import sys
from mvindex.encoder.checkpoint import read_checkpoint  # noqa: E402 - as above
from mvindex.encoder.onnx_cache import find_form
print(find_form(sys.argv[1]))
"""


def by_the_other(code, *arguments):
    python = Path(os.environ["MVINDEX_OTHER_ONNXRUNTIME"]) / "bin/python"
    done = subprocess.run(
        [python, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_the_light_form_gives_the_same_vectors_by_both(tmp_path):
    other = by_the_other(ENCODE, str(tmp_path / "found.npz"), json.dumps([TEXTS, QUERIES]))
    assert other != onnxruntime.__version__
    encoder, found = load_encoder(device="cpu"), np.load(tmp_path / "found.npz")
    expected = encoder.encode_documents([Document(str(number), text) for number, text in enumerate(TEXTS)])
    assert (found["rows"] * expected.rows).sum(axis=1).min() > LEAST_COSINE
    assert (found["queries"] * encoder.encode_queries(QUERIES)).sum(axis=1).min() > LEAST_COSINE


def test_a_form_of_another_encoder_is_left_to_the_version_that_made_it(tmp_path, monkeypatch):
    """Its graph is optimised for one version; the other one finds none, and makes its own where torch is."""
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    encoder = TransformerEncoder(read_checkpoint(make_model(tmp_path / "bert")), "cpu")
    made = make_form(encoder)
    assert isinstance(made, OnnxForm)
    assert by_the_other(FIND, encoder.fingerprint) == "None"
    assert find_form(encoder.fingerprint) == made
