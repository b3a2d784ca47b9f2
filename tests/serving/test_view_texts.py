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


@pytest.mark.parametrize("repeated", [1, 200])
def test_the_server_encodes_only_what_is_new_of_changed_documents(serving, repeated):
    """Long texts are encoded before the writing thread's turn."""
    texts = [f"{year} was a year of crisis. " * repeated for year in (1973, 1979, 1990)]

    def documents(*numbers):
        return [Document(str(number), texts[text]) for number, text in enumerate(numbers)]

    with mvindex.open(serving.url()) as client:
        first = client.add(documents(0, 1))
        assert (first.views_encoded, first.views_reused) == (first.views_given, 0)
        [before] = client.search("1979", top_k=1, mode="dense", filter={"id": "1"})
        report, half = client.add(documents(1, 2)), first.views_given // 2
        assert (report.replaced, report.views_encoded, report.views_reused) == (2, half, half)
        [after] = client.search("1979", top_k=1, mode="dense", filter={"id": "0"})
        assert (after.score, after.text) == (before.score, before.text)
        rows = [{"id": each.id, "text": each.text} for each in documents(0, 1)]
        counts = post(serving, "/v1/indexes/a/documents", {"documents": rows})
        assert (counts["replaced"], counts["views_encoded"], counts["views_reused"]) == (2, half, half)
        client.delete(ids=["0", "1"])


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
