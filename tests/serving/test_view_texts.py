"""Texts that make views of a document, sent to a server."""

import json
import urllib.error
import urllib.request

import pytest
from serving_tools import served

import mvindex
from mvindex import Document, ViewText
from mvindex.errors import DocumentError
from mvindex.v1 import documents_pb2
from mvindex_connectors.remote.convert import document_from

pytestmark = pytest.mark.needs("minilm")

TEXT = "The embargo began in October. By March a barrel cost $12."
ASKED = ViewText("How much was oil after the crisis?", span=(30, 57))


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    folder = tmp_path_factory.mktemp("view-texts")
    with mvindex.create(folder / "a.mvx", encoder="minilm") as index:
        index.add([Document("other", "Mice hunt at night.")])
    with served(f"--index=a={folder / 'a.mvx'}", "--http", "0") as serving:
        yield serving


def post(serving, path, body):
    request = urllib.request.Request(
        serving.http + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        return json.loads(response.read())


def test_view_texts_arrive_over_grpc_and_http_alike(serving):
    row = {"id": "http", "text": TEXT, "view_texts": ["energy", {"text": ASKED.text, "span": list(ASKED.span)}]}
    with mvindex.open(serving.url()) as client:
        assert client.add([Document("grpc", TEXT, view_texts=["energy", ASKED])]).views_given == 4
        assert post(serving, "/v1/indexes/a/documents", {"documents": [row]})["added"] == 1
        hits = client.search(ASKED.text, top_k=2, mode="dense").hits
        assert {hit.id for hit in hits} == {"grpc", "http"}
        assert [(hit.span, hit.snippet) for hit in hits] == [(ASKED.span, "By March a barrel cost $12.")] * 2
        assert client.get("grpc") == Document("grpc", TEXT)


@pytest.mark.parametrize(
    ("view_text", "named"),
    [({"text": "a", "span": [3, 900]}, "span"), ({"text": " "}, "says something"), ({"txt": "a"}, "view_texts")],
)
def test_a_bad_view_text_is_refused_over_http(serving, view_text, named):
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(serving, "/v1/indexes/a/documents", {"documents": [{"id": "b", "text": TEXT, "view_texts": [view_text]}]})
    assert refused.value.code == 400 and named in refused.value.read().decode()


def test_half_a_span_is_refused():
    message = documents_pb2.Document(id="a", text=TEXT)
    message.view_texts.add(text="energy", begin=3)
    with pytest.raises(DocumentError, match="both begin and end"):
        document_from(message)
