"""More idle connections than descriptors: both ports answer all the same."""

import contextlib
import http.client
import resource
import socket
import ssl
import time

import pytest
from certificates import Authority
from serving_tools import fill, served, vectors

from mvindex_connectors.remote import Access, CallSettings, IndexClient

OPEN_FILES, MANY = 400, 450
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
POST = (
    b"POST /v1/indexes/a/search HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/json\r\ncontent-length: 99\r\n\r\n{"
)
KINDS = {
    "h2": ("grpc", PREFACE),
    "h2 over TLS": ("grpc", PREFACE),
    "bare TCP on gRPC": ("grpc", b""),
    "bare TCP on HTTPS": ("http", b""),
    "slow body": ("http", POST),
    "slow head": ("http", b"GET / HTTP/1.1\r\nhost"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("connections")
    fill(folder / "a.mvx")
    return folder


@contextlib.contextmanager
def idle(address, first, context):
    host, port = address.rpartition("://")[2].rsplit(":", 1)
    with contextlib.ExitStack() as stack:
        for _ in range(MANY):
            with contextlib.suppress(OSError):  # refused, or made to give way
                sock = stack.enter_context(socket.create_connection((host, int(port)), timeout=5))
                if context is not None:
                    sock = stack.enter_context(context.wrap_socket(sock))
                sock.sendall(first)
        yield


def status(address, context):
    host = address.partition("://")[2]
    if address.startswith("https"):
        connection = http.client.HTTPSConnection(host, timeout=20, context=context)
    else:
        connection = http.client.HTTPConnection(host, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", "/livez")
        return connection.getresponse().status


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[] if kind == "h2" else pytest.mark.full) for kind in KINDS])
def test_idle_connections_leave_both_ports_answering(folder, kind):
    """The limit is lower than what they would take; each port has half of it."""
    port, first = KINDS[kind]
    options, access, context = ["--http", "0"], Access(), ssl._create_unverified_context()
    is_tls = "TLS" in kind or "HTTPS" in kind
    if is_tls:
        authority = Authority(folder / kind.replace(" ", "-"))
        cert, key = authority.issue("server")
        options += ["--tls-cert", cert, "--tls-key", key]
        access = Access(tls_ca=authority.cert)
    alpn = ssl._create_unverified_context()
    alpn.set_alpn_protocols(["h2"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        with served(f"--index=a={folder / 'a.mvx'}", *options, open_files=(OPEN_FILES, OPEN_FILES)) as serving:
            settings = CallSettings(timeout_s=30, retry_s=20)
            with (
                IndexClient(serving.url(), access=access, settings=settings) as kept,
                idle(getattr(serving, port), first, alpn if kind == "h2 over TLS" else None),
            ):
                for _ in range(5):
                    assert status(serving.http, context) == 200
                    with IndexClient(serving.url(), access=access, settings=settings) as fresh:
                        assert len(fresh.search(vectors(1)[0], top_k=3).hits) == 3
                    assert len(kept.search(vectors(1)[0], top_k=3).hits) == 3
                    time.sleep(0.3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_limit_of_open_files_is_raised(folder):
    soft, hard = 300, 700
    with served(f"--index=a={folder / 'a.mvx'}", open_files=(soft, hard)) as serving:
        assert resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
