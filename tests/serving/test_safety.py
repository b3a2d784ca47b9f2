"""Access control: a server beyond loopback requires TLS and tokens, or --insecure."""

import os
import signal
import time

import grpc
import pytest
from certificates import Authority
from serving_tools import far_away, fill, served, start, vectors, wait_for

import mvindex
from mvindex.errors import AccessDenied, ConfigError, NotPermitted, ServerUnavailable
from mvindex.v1 import service_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote import Access, CallSettings, IndexClient
from mvindex_connectors.remote.retry import is_retryable
from mvindex_connectors.server.config import ServerConfig, parse_index
from mvindex_connectors.server.tokens import Role, Tokens

READER, WRITER = "reader-0123456789", "writer-0123456789"
QUICK = CallSettings(timeout_s=20, retry_s=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("safety")
    fill(folder / "a.mvx")
    (folder / "tokens").write_text(f"# who may do what\n\nread-only {READER} ann\nread-write {WRITER}\n")
    (folder / "tokens").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def authority(folder):
    return Authority(folder / "tls")


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({}, ["--tls-cert", "--token-file", "--insecure"]),
        ({"token_file": "tokens"}, ["--tls-cert"]),
    ],
)
def test_a_public_address_without_tls_or_tokens_is_refused(folder, options, missing):
    given = {name: folder / value for name, value in options.items()}
    with pytest.raises(ConfigError) as refused:
        ServerConfig(indexes=[("a", "a.mvx")], host="0.0.0.0", **given)
    assert all(flag in str(refused.value) for flag in ["0.0.0.0", *missing])
    assert "--token-file" not in str(refused.value) or "token_file" not in options


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_loopback_needs_nothing(host):
    assert ServerConfig(indexes=[("a", "a.mvx")], host=host).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org", ""])
def test_every_other_address_needs_more(host):
    with pytest.raises(ConfigError):
        ServerConfig(indexes=[("a", "a.mvx")], host=host)
    assert ServerConfig(indexes=[("a", "a.mvx")], host=host, is_insecure=True).host == host


def test_the_command_refuses_with_one_line_and_exit_1(folder):
    with pytest.raises(RuntimeError) as refused:
        start(f"--index=a={folder / 'a.mvx'}", "--host", "0.0.0.0")
    message = str(refused.value).split("did not start: ")[1]
    assert message.startswith("mvindex: --host 0.0.0.0") and message.count("\n") == 1


def test_names_of_indexes():
    assert parse_index("wiki=/data/x.mvx") == ("wiki", "/data/x.mvx")
    assert parse_index("/data/wiki.mvx") == ("wiki", "/data/wiki.mvx")
    assert parse_index("b=grpc://h:1/a") == ("b", "grpc://h:1/a")
    for wrong in ("=x", "x=", "grpc://h:1/a"):
        with pytest.raises(ConfigError):
            parse_index(wrong)
    for names in ([], ["a", "a"], ["a b"], ["a/b"], [""]):
        with pytest.raises(ConfigError):
            ServerConfig(indexes=[(name, "x") for name in names])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no token"),
        ("root abcdefghijklmnopqrst", ":1:"),
        (f'admin {WRITER} filter={{"n": 1}}', ":1: filter="),
        ("read-only short", ":1:"),
        ("\nread-only", ":2:"),
        (f"read-only {READER}\nread-write {READER}", ":2:"),
        (f"read-only {READER} a b", ":1:"),
    ],
)
def test_a_wrong_token_file_is_refused_by_line_and_its_tokens_are_not_shown(tmp_path, text, why):
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why) as refused:
        Tokens(path)
    assert READER not in str(refused.value) and "short" not in str(refused.value)


def test_tokens_identify_callers_and_other_headers_are_denied(folder):
    tokens = Tokens(folder / "tokens")
    assert tokens.authenticate(f"Bearer {READER}").name == "ann"
    assert tokens.authenticate(f"bearer {WRITER}").role is Role.READ_WRITE
    for header in (None, "", "Bearer", "Bearer ", READER, f"Basic {READER}", f"Bearer {READER}x", "Bearer \udcff"):
        with pytest.raises(AccessDenied):
            tokens.authenticate(header)


def test_a_malformed_token_file_keeps_the_old_tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"read-only {READER}\n")
    tokens = Tokens(path)
    path.write_text("nonsense\n")
    tokens.reload()
    assert tokens.authenticate(f"Bearer {READER}").role is Role.READ_ONLY
    path.write_text(f"read-only {WRITER}\n")
    tokens.reload()
    with pytest.raises(AccessDenied):
        tokens.authenticate(f"Bearer {READER}")


def test_a_token_is_not_sent_in_the_clear_nor_taken_from_a_url():
    with pytest.raises(ConfigError, match="in the clear"):
        IndexClient("grpc://example.org:7700/a", access=Access(token=READER), settings=QUICK)
    with pytest.raises(ConfigError, match="MVINDEX_TOKEN") as refused:
        IndexClient(f"grpcs://{READER}@example.org:7700/a")
    assert READER not in str(refused.value)
    assert READER not in repr(Access(token=READER))


@pytest.mark.needs("openssl")
def test_tokens_and_tls_over_the_wire(folder, authority):
    """One server with TLS and tokens: who may read, write, or not even connect."""
    cert, key = authority.issue("server")
    tokens = folder / "live-tokens"
    tokens.write_text(f"read-only {READER} ann\nread-write {WRITER} bob\n")
    tokens.chmod(0o600)
    arguments = ["--tls-cert", cert, "--tls-key", key, "--token-file", tokens, "--host", "0.0.0.0"]
    with served(f"--index=a={folder / 'a.mvx'}", *arguments) as serving:
        url = f"grpcs://127.0.0.1:{serving.target.rpartition(':')[2]}/a"
        reader, writer = (Access(token=token, tls_ca=authority.cert) for token in (READER, WRITER))
        with IndexClient(url, access=reader, settings=QUICK) as client:
            assert len(client.search(vectors(1)[0], top_k=5).hits) == 5
            for write in (lambda: client.delete(ids="d0"), lambda: client.update("d0", metadata={}),
                          lambda: client.add_views([mvindex.Document("x", "x")], vectors(1))):  # fmt: skip
                with pytest.raises(NotPermitted, match="read-only"):
                    write()
            assert len(client) == 50
        with IndexClient(url, access=writer, settings=QUICK) as client:
            assert client.delete(ids="d0") == 1
        for access in (Access(tls_ca=authority.cert), Access(token="wrong-0123456789abc", tls_ca=authority.cert)):
            with pytest.raises(AccessDenied, match="token"):
                IndexClient(url, access=access, settings=QUICK)
        with pytest.raises(ServerUnavailable):  # an authority that we do not know
            IndexClient(url, access=Access(token=READER), settings=QUICK)
        with pytest.raises(ServerUnavailable):  # in the clear to a port with TLS
            IndexClient(url.replace("grpcs", "grpc"), access=Access(), settings=QUICK)

        tokens.write_text(f"read-only {WRITER} bob\n")
        serving.process.send_signal(signal.SIGHUP)
        wait_for(lambda: any("tokens reloaded" in line for line in serving.log))
        with pytest.raises(AccessDenied):
            IndexClient(url, access=reader, settings=QUICK)
        with IndexClient(url, access=writer, settings=QUICK) as client, pytest.raises(NotPermitted, match="read-only"):
            client.delete(ids="d1")
    log = "".join(serving.log)
    assert READER not in log and WRITER not in log and "wrong-0123456789abc" not in log
    assert '"caller": "ann"' in log


@pytest.mark.needs("openssl")
def test_mutual_tls_refuses_clients_without_a_valid_certificate(folder, authority):
    cert, key = authority.issue("mutual")
    stranger = Authority(folder / "other", "stranger")
    arguments = ["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.cert]
    with served(f"--index=a={folder / 'a.mvx'}", *arguments) as serving:
        good = Access(tls_ca=authority.cert, **names(authority.issue("client")))
        with IndexClient(serving.url(), access=good, settings=QUICK) as client:
            assert len(client.search(vectors(1)[0]).hits) == 10
        for pair in (authority.issue("late", expired=True), stranger.issue("client")):
            with pytest.raises(ServerUnavailable):
                IndexClient(serving.url(), access=Access(tls_ca=authority.cert, **names(pair)), settings=QUICK)
        with pytest.raises(ServerUnavailable):
            IndexClient(serving.url(), access=Access(tls_ca=authority.cert), settings=QUICK)


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("wrong", ["expired", "another's", "a stranger's", "none"])
def test_a_wrong_certificate_is_not_retried(folder, authority, wrong):
    hosts = "DNS:example.org" if wrong == "another's" else "IP:127.0.0.1"
    cert, key = authority.issue(f"wrong-{wrong[:3]}", expired=wrong == "expired", hosts=hosts)
    known = Authority(folder / "known", "known") if wrong == "a stranger's" else authority
    options = [] if wrong == "none" else ["--tls-cert", cert, "--tls-key", key]
    with served(f"--index=a={folder / 'a.mvx'}", *options) as serving:
        begun = time.monotonic()
        with pytest.raises(ServerUnavailable):
            IndexClient(
                f"grpcs://{serving.target}/a", access=Access(tls_ca=known.cert), settings=CallSettings(retry_s=100)
            )
        assert time.monotonic() - begun < 30


@pytest.mark.full
@pytest.mark.needs("openssl")
def test_a_certificate_that_expires_under_load_ends_no_call_and_is_replaced_without_a_restart(folder, authority):
    """Connections that stand go on; new ones are refused until the file is another."""
    cert, key = authority.issue("short", valid_s=15)
    expires = time.monotonic() + 15
    access = Access(tls_ca=authority.cert)
    options = ["--tls-cert", cert, "--tls-key", key]
    with served(f"--index=a={folder / 'a.mvx'}", *options) as serving:
        with IndexClient(serving.url(), access=access, settings=QUICK) as before:
            while time.monotonic() < expires + 3:
                assert len(before.search(vectors(1)[0]).hits) == 10
            with pytest.raises(ServerUnavailable, match=r"(?i)certificate"):
                IndexClient(serving.url(), access=access, settings=QUICK)
            good_cert, good_key = authority.issue("long")
            for good, short in ((good_key, key), (good_cert, cert)):
                os.replace(good, short)
            wait_for(lambda: any("certificate reloaded" in line for line in serving.log))
            assert len(before.search(vectors(1)[0]).hits) == 10
        with IndexClient(serving.url(), access=access, settings=QUICK) as after:
            assert len(after.search(vectors(1)[0]).hits) == 10


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("is_tls", [False, True])
def test_a_distant_server_is_reached_at_the_first_attempt(folder, authority, is_tls):
    cert, key = authority.issue(f"far-{is_tls}")
    options = ["--tls-cert", cert, "--tls-key", key] if is_tls else []
    access = Access(tls_ca=authority.cert) if is_tls else Access()
    with served(f"--index=a={folder / 'a.mvx'}", *options) as serving, far_away(serving, 0.3) as port:
        url = f"{serving.grpc.partition('://')[0]}://127.0.0.1:{port}/a"
        with IndexClient(url, access=access, settings=QUICK) as client:
            assert len(client.search(vectors(1)[0]).hits) == 10


@pytest.mark.parametrize(
    "details",
    [
        "last error: UNKNOWN: ipv4:127.0.0.1:1: tcp handshaker shutdown",
        "last error: UNAVAILABLE: ipv4:127.0.0.1:1: Handshake read failed (Endpoint closing)",
    ],
)
def test_an_interrupted_connection_is_retried(details):
    """The messages of gRPC for a connection that took too long, without TLS and with it."""

    class Failed(grpc.RpcError):
        def code(self):
            return grpc.StatusCode.UNAVAILABLE

        def details(self):
            return details

    assert is_retryable(Failed())


@pytest.mark.needs("openssl")
def test_a_certificate_without_its_key_is_refused(authority, folder):
    cert, _ = authority.issue("one")
    _, key = authority.issue("two")
    with pytest.raises(RuntimeError, match="expected a certificate and its key"):
        start(f"--index=a={folder / 'a.mvx'}", "--tls-cert", cert, "--tls-key", key)


def test_reflection_needs_a_token_and_health_does_not(folder):
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    with served(f"--index=a={folder / 'a.mvx'}", "--token-file", folder / "tokens") as serving:
        with grpc.insecure_channel(serving.target) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for name in ("", "a"):
                assert health.Check(health_pb2.HealthCheckRequest(service=name)).status == 1
            with pytest.raises(grpc.RpcError) as unknown:
                health.Check(health_pb2.HealthCheckRequest(service="nope"))
            assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
            ask = [reflection_pb2.ServerReflectionRequest(list_services="")]
            reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
            with pytest.raises(grpc.RpcError) as denied:
                list(reflection.ServerReflectionInfo(iter(ask)))
            assert denied.value.code() is grpc.StatusCode.UNAUTHENTICATED
            headers = [("authorization", f"Bearer {READER}")]
            [answer] = list(reflection.ServerReflectionInfo(iter(ask), metadata=headers))
            names = {service.name for service in answer.list_services_response.service}
            assert {"mvindex.v1.MvindexService", "grpc.health.v1.Health"} <= names
            assert MvindexServiceStub(channel).Indexes(service_pb2.IndexesRequest(), metadata=headers).names == ["a"]


def names(pair):
    return {"tls_cert": pair[0], "tls_key": pair[1]}


def test_tokens_come_from_the_environment_or_a_file(tmp_path, monkeypatch):
    from mvindex_connectors.remote.address import access_from_environment

    (tmp_path / "token").write_text(READER + "\n")
    assert access_from_environment({"MVINDEX_TOKEN_FILE": str(tmp_path / "token")}).token == READER
    assert access_from_environment({"MVINDEX_TOKEN": WRITER, "MVINDEX_TLS_CA": "ca"}).tls_ca == "ca"
    assert access_from_environment({}).token is None
    assert os.environ.get("MVINDEX_TOKEN", "") == ""
