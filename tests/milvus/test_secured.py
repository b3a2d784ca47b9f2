"""A server with passwords, TLS and a limit of writes a second: commands reach it, say what is wrong, tell no secret."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest
from milvus_documents import fill, topical
from milvus_server import MilvusServer

import mvindex
from mvindex import Document

pytestmark = [pytest.mark.needs("milvus-server"), pytest.mark.needs("openssl"), pytest.mark.full]
SECRETS = ("root:Milvus", "wr0ng", "re4der-pw")


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """The server, and the certificate that it shows."""
    folder = tmp_path_factory.mktemp("secured")
    cert, key = folder / "server.pem", folder / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    settings = [
        "common.security.authorizationEnabled=true",
        "common.security.tlsMode=1",
        f"tls.serverPemPath={cert}",
        f"tls.serverKeyPath={key}",
        "quotaAndLimits.dml.enabled=true",
        "quotaAndLimits.dml.upsertRate.collection.max=0.1",
    ]
    with MilvusServer(folder, settings, cert) as server:
        yield server, cert


def told(*args, **env):
    """Return the output of a command in its own process: within one, pymilvus reuses the connection of an address."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MVINDEX_MILVUS_")}
    command = [sys.executable, "-m", "mvindex", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env={**clean, **env})
    assert not any(secret in done.stdout + done.stderr for secret in SECRETS)
    assert "Traceback" not in done.stderr
    return done


def test_who_has_the_password_and_trusts_the_certificate_is_served(secured):
    server, cert = secured
    views = topical(20, 3)
    place = server.url("guarded", f"?tls={cert}&server_name=localhost&timeout=20")
    with mvindex.create(place.replace("//", "//root:Milvus@", 1), dim=16) as index:
        fill(index, views)
        assert index.where == f"milvus://127.0.0.1:{server.port}/guarded"
    by_name = {"MVINDEX_MILVUS_USER": "root", "MVINDEX_MILVUS_PASSWORD": "Milvus"}
    for env in (by_name, {"MVINDEX_MILVUS_TOKEN": "root:Milvus"}):
        done = told("get", "d3", "--index", place, "--json", **env)
        assert (done.returncode, '"text of d3"' in done.stdout) == (0, True), done.stderr
    # One who may read only: the server's own word for it, in one line.
    client = server._client(20)
    client.create_user("reader", "re4der-pw")
    client.create_role("reading")
    for privilege in ("Query", "Search", "GetLoadState"):
        client.grant_privilege("reading", "Collection", privilege, "*")
    for privilege in ("DescribeCollection", "ShowCollections"):
        client.grant_privilege("reading", "Global", privilege, "*")
    client.grant_role("reader", "reading")
    client.close()
    done = told("delete", "d3", "--index", place, MVINDEX_MILVUS_TOKEN="reader:re4der-pw")
    assert done.returncode == 1
    assert f"milvus://127.0.0.1:{server.port}/guarded" in done.stderr
    assert "refuses this user" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("query", "token"),
    [
        ("?tls={cert}&server_name=localhost", "root:wr0ng"),
        ("?tls={cert}&server_name=localhost", ""),
        ("", "root:Milvus"),
        ("?tls={cert}", "root:Milvus"),
        ("?tls=1", "root:Milvus"),
    ],
    ids=["a wrong password", "no password", "in the clear", "a name that is not in it", "of an unknown authority"],
)
def test_who_has_not_is_told_in_one_line_where_to_look(secured, query, token):
    server, cert = secured
    given = query.format(cert=cert)
    place = server.url("guarded", given + ("&" if given else "?") + "timeout=4")
    done = told("info", "--index", place, MVINDEX_MILVUS_TOKEN=token)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"mvindex: milvus://127.0.0.1:{server.port}/guarded: connecting: ")
    assert "MVINDEX_MILVUS_TOKEN" in line
    assert "tls=" in line


def test_a_server_that_limits_writes_slows_an_ingest_and_loses_nothing(secured, caplog):
    """0.1 MB a second, and 0.4 MB of views a commit: what is refused comes again, later."""
    server, cert = secured
    rows = np.random.default_rng(2).standard_normal((400, 2, 1024)).astype(np.float32)
    caplog.set_level(logging.INFO, "mvindex.retries")
    place = server.url("slow", f"?tls={cert}&server_name=localhost&timeout=100")
    count = 0
    with mvindex.create(place.replace("//", "//root:Milvus@", 1), dim=1024) as index:
        # A busy machine may be below the limit for a while.
        while count < len(rows) and "rate limit" not in caplog.text:
            numbers = range(count, count + 50)
            report = index.add_views([Document(f"d{number}", "t") for number in numbers], rows[count : count + 50])
            assert report.added == 50
            count += 50
        assert "rate limit" in caplog.text
        assert len(index) == count
        assert index.admin.verify().is_sound
        assert index.search(rows[count - 9, 1], 1).hits[0].id == f"d{count - 9}"
