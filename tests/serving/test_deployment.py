"""A server as it is deployed: options from a file and the environment, certificates that are replaced while it runs."""

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time

import pytest
from certificates import Authority
from serving_tools import fill, served, start, vectors, wait_for

from mvindex.errors import AccessDenied, ServerUnavailable
from mvindex_connectors.remote import Access, CallSettings, IndexClient
from tests.helpers.cli import mvindex

QUICK = CallSettings(timeout_s=20, retry_s=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployment")
    fill(folder / "a.mvx")
    return folder


def test_options_come_from_the_command_line_then_the_environment_then_the_file(folder):
    file = folder / "serve.toml"
    file.write_text(
        f'index = ["a={folder / "a.mvx"}"]\nmax-top-k = 5\nmax-queries = 5\nmax-hits = 1000\nread-only = true\n'
        'http = 0\nlog-level = "info"\n'
    )
    environment = {"MVINDEX_SERVE_CONFIG": str(file), "MVINDEX_SERVE_MAX_QUERIES": "6", "MVINDEX_SERVE_MAX_TOP_K": "6"}
    with served("--max-top-k", "7", env=environment) as serving, IndexClient(serving.url()) as client:
        assert serving.http is not None
        for top_k, is_allowed in ((7, True), (8, False)):
            if is_allowed:
                assert len(client.search(vectors(1)[0], top_k=top_k).hits) == top_k
            else:
                with pytest.raises(Exception, match="at most 7"):
                    client.search(vectors(1)[0], top_k=top_k)
        with pytest.raises(Exception, match="takes 6"):
            client.search(vectors(7), top_k=1)
        with pytest.raises(Exception, match="read-only"):
            client.delete(ids="d1")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("colour = 1", "colour"),
        ("index = 'a=b'", "index: expected a list"),
        ("port = [1]", "port: expected one value"),
        ("port = true", "port: expected one value, got True"),
        ("read-only = 1", "read-only: expected true or false, got 1"),
        ("index = [1, 2]", "index: expected a list of texts"),
        ("port = ", "expected TOML"),
        ("batch = 'many'\nindex = ['a=b']", "batch"),
    ],
)
def test_a_wrong_file_is_refused_by_the_option(tmp_path, content, why):
    (tmp_path / "serve.toml").write_text(content)
    done = mvindex("serve", "--config", tmp_path / "serve.toml", "--http", "0", cwd=tmp_path)
    assert done.returncode and re.search(why, done.stderr), done


def test_the_log_level_leaves_out_calls(folder):
    with served(f"--index=a={folder / 'a.mvx'}", "--log-level", "error") as serving:
        with IndexClient(serving.url()) as client:
            client.search(vectors(1)[0])
        assert serving.calls() == []


@pytest.mark.needs("openssl")
def test_certificates_and_tokens_are_read_again_when_their_files_change(folder):
    """Also in one step by a link, as Kubernetes replaces them."""
    first, second = Authority(folder / "first"), Authority(folder / "second")
    cert, key = folder / "server.pem", folder / "server.key"
    for number, authority in enumerate((first, second)):
        pair = authority.issue("server")
        made = folder / f"tls-{number}"
        made.mkdir()
        for source, name in zip(pair, ("server.pem", "server.key"), strict=True):
            (made / name).write_bytes(source.read_bytes())
    current = folder / "current"
    current.symlink_to("tls-0")
    cert, key = current / "server.pem", current / "server.key"
    tokens = folder / "tokens"
    tokens.write_text("read-only reader-0123456789 ann\n")
    tokens.chmod(0o600)
    options = ["--tls-cert", cert, "--tls-key", key, "--token-file", tokens, "--http", "0"]
    with served(f"--index=a={folder / 'a.mvx'}", *options) as serving:

        def answers(authority, token="reader-0123456789"):
            access = Access(token=token, tls_ca=authority.cert)
            with IndexClient(serving.url(), access=access, settings=QUICK) as client:
                return len(client.search(vectors(1)[0], top_k=3).hits)

        assert answers(first) == 3
        (folder / "next").symlink_to("tls-1")
        os.replace(folder / "next", current)
        wait_for(lambda: any("certificate reloaded" in line for line in serving.log))
        assert answers(second) == 3
        with pytest.raises(ServerUnavailable):
            answers(first)
        host, port = serving.http.partition("://")[2].split(":")
        served_now = ssl.get_server_certificate((host, int(port)))
        assert served_now.strip() == (folder / "tls-1" / "server.pem").read_text().strip()

        tokens.write_text("read-only another-0123456789 ann\n")
        wait_for(lambda: any("tokens reloaded" in line for line in serving.log))
        assert answers(second, "another-0123456789") == 3
        with pytest.raises(AccessDenied):
            answers(second)

        (folder / "tls-1" / "server.key").write_text("no key")
        wait_for(lambda: any("certificate not reloaded" in line for line in serving.log))
        assert answers(second, "another-0123456789") == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_that_still_opens_its_indexes(number):
    """Here one behind a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"grpc://127.0.0.1:{silent.getsockname()[1]}/a"
        command = [sys.executable, "-m", "mvindex", "serve", "--index", f"a={address}", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            silent.settimeout(60)
            opened, _ = silent.accept()
            process.send_signal(number)
            try:
                assert process.wait(10) == -number
            finally:
                process.kill()
                opened.close()


def test_a_second_signal_ends_a_server_that_waits_for_calls(folder):
    with contextlib.closing(start(f"--index=a={folder / 'a.mvx'}", "--http", "0", "--drain", "60")) as serving:
        host, port = serving.http.partition("://")[2].split(":")
        with socket.create_connection((host, int(port)), timeout=10) as slow:
            slow.sendall(
                b"POST /v1/indexes/a/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                b"content-length: 99\r\n\r\n{"
            )
            time.sleep(0.5)
            serving.process.send_signal(signal.SIGTERM)
            wait_for(lambda: any("draining" in line for line in serving.log))
            time.sleep(0.5)
            assert serving.process.poll() is None
            serving.process.send_signal(signal.SIGTERM)
            assert serving.process.wait(10) == -signal.SIGTERM
