"""A server whose encoders multiply in int8."""

import numpy as np
import pytest
from serving_tools import served, start

import mvindex
from mvindex import Document
from mvindex.errors import Unsupported
from mvindex_connectors.remote import IndexClient
from tests.helpers.tiny_models import make_model

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
QUERIES = ["was the cat on the mat?", "a", "the old river ran under it"]


@pytest.mark.needs("vnni")
def test_a_server_encodes_in_int8_where_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "a.mvx"
    with mvindex.create(path, encoder=make_model(tmp_path / "bert")) as index:
        index.add([Document("1", "The cat sat on the mat. It ran."), Document("2", "a new house")])
    with mvindex.open(path, query_precision="int8") as rounded, mvindex.open(path) as exact:
        expected = rounded.encode_queries(QUERIES)
        assert np.abs(expected - exact.encode_queries(QUERIES)).max() > 1e-4
        with served(f"--index=a={path}", "--query-precision=int8") as serving, IndexClient(serving.url()) as index:
            np.testing.assert_allclose(index.encode_queries(QUERIES), expected, rtol=0, atol=1e-6)
            assert index.search(QUERIES, mode="dense") == rounded.search(QUERIES, mode="dense")
            with pytest.raises(
                Unsupported, match="a server has the index, and encodes: mvindex serve --query-precision"
            ):
                mvindex.open(serving.url(), query_precision="int8")
    with pytest.raises(RuntimeError, match="query_precision: expected 'fp32' or 'int8', got 'int4'"):
        start(f"--index=a={path}", "--query-precision=int4")


def test_an_index_whose_encoder_has_no_int8_stops_the_start(tmp_path):
    path = tmp_path / "a.mvx"
    mvindex.create(path, encoder=lambda texts: np.ones((len(texts), 4))).close()
    with pytest.raises(RuntimeError, match="int8 is for checkpoints; this encoder is of kind 'function'"):
        start(f"--index=a={path}", "--query-precision=int8")
