"""An index over an OpenAI-compatible endpoint: a server of that protocol from elsewhere, in a process of its own."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

import mvindex
from mvindex.encoder import load_encoder
from mvindex.errors import ConfigError, EncoderUnavailable
from mvindex.index import embedded_store_of
from tests.helpers.cli import mvindex as run_command
from tests.helpers.cli import ok

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llmock") is None, reason="the package llmock is not installed"
)

MODEL = "text-embedding-3-small"
KEY = "sk-secret-0123456789"
PASSAGES = {
    "oil": "The oil crisis began in October 1973. The embargo ended in March 1974. Prices had risen fourfold.",
    "plague": "The plague reached Genoa in 1347. It was carried by fleas.",
}


@pytest.fixture(scope="module")
def server():
    """The URL of a running llmock: vectors made of a text's hash, faults on demand."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "llmock.cli", "serve", "--port", str(port), "--log-level", "warning"]
    run = "from llmock.cli import app; app()"
    process = subprocess.Popen([sys.executable, "-c", run, *command[3:]], stdout=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(port, process):
    for _ in range(600):
        assert process.poll() is None
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"llmock does not listen at port {port}")


def control(server, name, body=None, method=None):
    """Return the answer of a control call of llmock."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server}/_llmock/{name}", data, method=method)
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


@pytest.fixture
def source(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    control(server, "reset", {})
    return f"openai:{server}/v1#{MODEL}"


def documents():
    return [mvindex.Document(doc_id, text) for doc_id, text in PASSAGES.items()]


def test_the_official_client_gets_the_same_vectors(server, source):
    openai = pytest.importorskip("openai")
    texts = [f"text {number}" for number in range(70)]
    ours = load_encoder(source).encode_queries(texts)
    with openai.OpenAI(base_url=f"{server}/v1", api_key=KEY) as client:
        answer = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    theirs = np.array([item.embedding for item in answer.data], dtype=np.float32)
    assert ours.shape == (70, 1536)
    assert np.array_equal(ours, theirs)


def test_an_index_opens_by_itself_and_finds_a_snippet(tmp_path, source):
    with mvindex.create(tmp_path / "a.mvx", encoder=source, lexical="none") as index:
        index.add(documents())
        assert index.info().views == 5
    with mvindex.open(tmp_path / "a.mvx") as index:
        hit = index.search("The embargo ended in March 1974.")[0]
    # The vector of a text is that of its hash: only the same text is near.
    assert (hit.id, hit.snippet, hit.slot) == ("oil", "The embargo ended in March 1974.", 1)
    stored = b"".join(file.read_bytes() for file in (tmp_path / "a.mvx").iterdir() if file.is_file())
    assert KEY.encode() not in stored
    assert MODEL.encode() in stored


def test_the_first_search_of_an_opened_index_takes_one_request(tmp_path, server, source):
    mvindex.create(tmp_path / "a.mvx", encoder=source).close()
    control(server, "reset", {})
    with mvindex.open(tmp_path / "a.mvx") as index:
        index.encode_queries(["a"])
        index.encode_queries(["b"])
    assert control(server, "requests")["count"] == 2


def test_the_commands_ingest_and_query(tmp_path, source):
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in PASSAGES.items()))
    env = {**os.environ, "OPENAI_API_KEY": KEY}
    made = ok(run_command("ingest", "c.jsonl", "--encoder", source, "--views", "2", "--json", cwd=tmp_path, env=env))
    assert json.loads(made.stdout)["views_stored"] == 4
    found = ok(run_command("query", "It was carried by fleas.", "--index", "c.mvx", "--json", cwd=tmp_path, env=env))
    assert json.loads(found.stdout)["hits"][0]["id"] == "plague"
    again = ok(run_command("ingest", "c.jsonl", "--encoder", source, "--json", cwd=tmp_path, env=env))
    assert json.loads(again.stdout)["unchanged"] == 2
    shown = ok(run_command("info", "--index", "c.mvx", cwd=tmp_path, env=env))
    for output in (made, found, again, shown):
        assert KEY not in output.stdout + output.stderr
    assert MODEL in shown.stdout


def test_a_command_without_the_server_fails_in_one_line(tmp_path):
    (tmp_path / "c.tsv").write_text("id\ttext\n1\tx\n")
    source = "openai:http://127.0.0.1:1/v1#m"
    failing = (
        "import mvindex.encoder.embedding.openai as http, sys; from mvindex.cli import main;"
        "http.time.sleep = lambda seconds: None;"
        f"sys.argv[1:] = ['ingest', 'c.tsv', '--encoder', {source!r}]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", failing], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "http://127.0.0.1:1/v1/embeddings: expected an answer, got none" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "c.mvx").exists()


def test_faults_on_the_way_change_nothing(tmp_path, server, source):
    with mvindex.create(tmp_path / "a.mvx", encoder=source) as index:
        control(
            server,
            "scenario",
            {"behaviors": [{"type": "fail", "status": 429, "retry_after": 0.01}, {"type": "fail", "status": 503}]},
        )
        index.add(documents())
        [hit, _] = index.search("It was carried by fleas.", mode="dense")
    assert hit.id == "plague"
    assert [one["status"] for one in control(server, "requests")["requests"]].count(200) >= 3


def test_a_refused_key_stops_the_ingest_and_stores_nothing(tmp_path, server, source):
    with mvindex.create(tmp_path / "a.mvx", encoder=source) as index:
        control(server, "scenario", {"behaviors": [{"type": "fail", "status": 401, "message": "bad key"}]})
        with pytest.raises(EncoderUnavailable, match="/v1/embeddings: status 401: bad key; check the key"):
            index.add(documents())
        assert len(index) == 0


def test_another_model_or_host_is_refused_and_both_are_named(tmp_path, server, source):
    mvindex.create(tmp_path / "a.mvx", encoder=source).close()
    mvindex.open(tmp_path / "a.mvx", encoder=source).close()
    with pytest.raises(ConfigError, match=f"expected the encoder .*#{MODEL}.*got .*#other"):
        mvindex.open(tmp_path / "a.mvx", encoder=f"openai:{server}/v1#other")
    elsewhere = source.replace("127.0.0.1", "localhost")
    with pytest.raises(ConfigError, match=r"expected the encoder .*127\.0\.0\.1.*got .*localhost"):
        mvindex.open(tmp_path / "a.mvx", encoder=elsewhere)


def test_a_model_that_was_swapped_behind_its_name_is_refused(tmp_path, source):
    with mvindex.create(tmp_path / "a.mvx", encoder=source) as index:
        index.add(documents())
        spec = dict(index.settings["encoder"])
        with embedded_store_of(index).writing() as writer:
            writer.change_settings(encoder={**spec, "probe": [-number for number in spec["probe"]]})
    with mvindex.open(tmp_path / "a.mvx") as index:
        for attempt in (lambda: index.search("oil"), lambda: index.add(["more"])):
            with pytest.raises(ConfigError, match="gives other vectors"):
                attempt()
        assert len(index) == 2
