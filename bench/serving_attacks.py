"""Measure what a hostile or careless client costs the others of a server: its memory, its health, their latency.

    python bench/serving_attacks.py --before OTHER/bin/python --out build/bench/attacks.json

For each attack a server is started with `ulimit -n 1024`, left alone for some seconds, and attacked, by turns.
Meanwhile one client asks for its health by a new HTTP connection each time, and another searches by gRPC. What sharing
the machine costs is told apart: `p99_apart_ms` is of the same attack on another server beside this one, and the attack
"busy" asks nothing and only computes. Attackers elsewhere take nothing of this machine; this one takes what the others
leave (--nice 19), or its share (--nice 0). --before: the Python of another installation, whose server is measured by
turns with this one's.
"""

import argparse
import gzip
import http.client
import itertools
import json
import os
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import harness
import numpy as np

import mvindex
from mvindex import Document
from mvindex.v1 import documents_pb2, search_pb2

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "serving")]
from certificates import Authority  # noqa: E402 - makes certificates as the tests do
from serving_tools import Serving  # noqa: E402 - the tests' server, in a process of its own

from tests.growth.alphabets import texts  # noqa: E402 - the texts that the tests of growth read

SERVICE = "/mvindex.v1.MvindexService/"
SOCKETS = ("h2", "h2-tls", "tcp-https", "slow-body", "slow-head")
ATTACKS = (
    "busy", "response", "response-http", "terms", "objects", "vectors", "gzip-bomb", "texts", "storm", *SOCKETS
)  # fmt: skip
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
DIM, WORDS = 8, 3000
_MAX_FAILED = 10
# As many characters as a server takes in a document by default, beside its id and metadata.
MOST_CHARS = (1 << 20) - 100


def make_indexes(folder, options):
    """Make an index of few long documents, and one of many short ones with lexical search."""
    rng = np.random.default_rng(0)
    with mvindex.create(folder / "long.mvx", dim=DIM) as index:
        texts = ["word " * (options.long_kb * 205) for _ in range(60)]
        index.add_views([Document(f"d{n}", text) for n, text in enumerate(texts)], unit(rng, 60)[:, None])
    with mvindex.create(folder / "many.mvx", dim=DIM, lexical="unicode") as index:
        for begin in range(0, options.documents, 1000):
            rows = range(begin, begin + 1000)
            texts = [" ".join(f"w{w}" for w in rng.integers(0, WORDS, 20)) for _ in rows]
            documents = [Document(f"d{n}", text) for n, text in zip(rows, texts, strict=True)]
            index.add_views(documents, unit(rng, 1000)[:, None])


def make_with(python, folder, options):
    """Make the indexes with the version that will serve them: it may not read those of another."""
    folder.mkdir()
    command = [python, __file__, "--make", folder, "--documents", options.documents, "--long-kb", options.long_kb]
    subprocess.run(list(map(str, command)), check=True, cwd=_root_of(python))


def unit(rng, count):
    rows = rng.standard_normal((count, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _root_of(python):
    """Return the checkout whose .venv the Python is of."""
    root = Path(python).parents[2]
    return root if root.is_dir() else None


@contextmanager
def serving(python, folder, is_tls):
    command = [python, "-m", "mvindex", "serve", "--port", "0", "--http", "0"]
    command += [f"--index={name}={folder / name}.mvx" for name in ("long", "many")]
    if is_tls:
        command += ["--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key")]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=_root_of(python),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024)),
    )
    server = Serving(process)
    try:
        yield server
    finally:
        server.close()


class Probe:
    """One of the other clients: asks again and again, and keeps seconds and failures."""

    def __init__(self, ask):
        self._ask, self.seconds, self.failures, self._ended = ask, [], 0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._ended.wait(0.01):
            begun = time.perf_counter()
            try:
                self._ask()
            except (OSError, http.client.HTTPException, grpc.RpcError):
                self.failures += 1
            self.seconds.append(time.perf_counter() - begun)

    def stop(self):
        self._ended.set()
        self._thread.join(60)
        return self


class Asked:
    """Seconds and failures of one of the other clients, in all turns."""

    def __init__(self):
        self.seconds, self.failures = [], 0

    def add(self, probe):
        self.seconds += probe.seconds
        self.failures += probe.failures

    @property
    def failed(self):
        return f"{self.failures}/{len(self.seconds)}"

    @property
    def p99_ms(self):
        return round(1000 * float(np.percentile(self.seconds, 99)), 1)

    @property
    def most_ms(self):
        return round(1000 * max(self.seconds), 1)


class Figures:
    """Seconds and failures of both other clients."""

    def __init__(self):
        self.health, self.search = Asked(), Asked()

    def add(self, probes):
        for asked, probe in zip((self.health, self.search), probes, strict=True):
            asked.add(probe)


def channel_of(server, folder, is_tls):
    more = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))
    if not is_tls:
        return grpc.insecure_channel(server.target, more)
    credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
    return grpc.secure_channel(server.target.replace("127.0.0.1", "localhost"), credentials, more)


def http_of(address, timeout=30):
    host = address.partition("://")[2]
    if address.startswith("https"):
        return http.client.HTTPSConnection(host, timeout=timeout, context=ssl._create_unverified_context())
    return http.client.HTTPConnection(host, timeout=timeout)


def health(address, path):
    connection = http_of(address)
    try:
        connection.request("GET", path)
        if connection.getresponse().status != 200:
            raise OSError("not healthy")
    finally:
        connection.close()


def search_message(rows, index="many", top_k=5):
    vectors = documents_pb2.Vectors(dim=DIM, values=np.asarray(rows, dtype="<f4").tobytes())
    return search_pb2.SearchRequest(index=index, vectors=vectors, top_k=top_k).SerializeToString()


def probes_of(server, folder, is_tls, is_fresh):
    """Return the two other clients; is_fresh: the searching one connects anew each time."""
    query = search_message(unit(np.random.default_rng(1), 1))
    kept = channel_of(server, folder, is_tls)

    def search():
        channel = channel_of(server, folder, is_tls) if is_fresh else kept
        channel.unary_unary(f"{SERVICE}Search")(query, timeout=30, wait_for_ready=is_fresh)
        if is_fresh:
            channel.close()

    path = "/livez"
    with suppress(OSError):
        health(server.http, path)
    try:
        health(server.http, path)
    except OSError:
        path = "/healthz"
    return Probe(lambda: health(server.http, path)), Probe(search)


def measure(python, attack, folder, options):
    """Return the figures of a server under an attack."""
    is_tls = attack in ("h2-tls", "tcp-https")
    with serving(python, folder, is_tls) as server, serving(python, apart_of(folder), is_tls) as other:

        def probes():
            return probes_of(server, folder, is_tls, attack in SOCKETS)

        def attack_one(attacked):
            return attack_server(attacked, attack, folder, options)

        # What others do on the machine, and what the attack leaves behind, is in the figures of all three.
        quiet, apart, here, answers = Figures(), Figures(), Figures(), {}
        for turn in range(options.turns):
            quiet.add(stopped(wait(probes(), options.seconds / options.turns)))
            others = probes()
            attack_one(other)
            apart.add(stopped(others))
            if not turn:
                before_bytes = harness.memory_bytes("VmRSS", server.process.pid)
                Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
            others = probes()
            for answer, count in attack_one(server).items():
                answers[answer] = answers.get(answer, 0) + count
            here.add(stopped(others))
        return {
            "attack": attack,
            "memory_mb": round((harness.memory_bytes("VmHWM", server.process.pid) - before_bytes) / 2**20),
            "health_stall_ms": here.health.most_ms,
            "health_failed": here.health.failed,
            "p99_ms": here.search.p99_ms,
            "p99_quiet_ms": quiet.search.p99_ms,
            "p99_apart_ms": apart.search.p99_ms,
            "p99_ratio": round(here.search.p99_ms / quiet.search.p99_ms, 1),
            "search_failed": here.search.failed,
            "attacker": answers,
        }


def apart_of(folder):
    """Return the folder of the same indexes for another server: one of them writes."""
    return folder.with_name(f"{folder.name}-apart")


def attack_server(server, attack, folder, options):
    """Attack a server by a process of its own, and return what it was answered."""
    is_http = attack in ("response-http", "objects", "texts", "storm", "tcp-https", "slow-body", "slow-head")
    command = [sys.executable, __file__, "--attack", attack, "--address", server.http if is_http else server.target]
    command += ["--folder", str(folder), "--seconds", str(options.seconds / options.turns)]
    numbers = ("sockets", "chars", "mb", "nice")
    command += [part for name in numbers for part in (f"--{name}", str(getattr(options, name)))]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def stopped(probes):
    """Stop both clients, after what the attack left behind was served, and return them."""
    time.sleep(0.2)
    return [probe.stop() for probe in probes]


def wait(probes, seconds):
    time.sleep(seconds)
    return probes


def attack(options):
    """Attack for as long as told, and print what the server answered and how often."""
    os.nice(options.nice)
    name, ends = options.attack, time.monotonic() + options.seconds
    answers, sent = {}, 0
    if name == "busy":
        while time.monotonic() < ends:
            sum(range(1000))
    elif name == "texts":
        answers = write_hostile_texts(options.address, ends, options.chars)
    elif name == "storm":
        while time.monotonic() < ends:
            send_and_leave(options.address, 400)
            sent += 400
            time.sleep(0.5)
        answers = {"left": sent}
    elif name in SOCKETS:
        opened = open_sockets(name, options.address, options.sockets)
        time.sleep(max(options.seconds, ends - time.monotonic()))
        answers = {"opened": len(opened)}
    else:
        ask = {"response-http": ask_http, "objects": ask_http}.get(name, ask_grpc)
        body = body_of(name, options)
        while time.monotonic() < ends or not sent:
            answer = ask(name, options, body)
            answers[answer] = answers.get(answer, 0) + 1
            sent += 1
    print(json.dumps(answers))


def body_of(name, options):
    rng = np.random.default_rng(2)
    if name == "response":
        return search_message(unit(rng, 512), "long", 40)
    if name == "response-http":
        return json.dumps({"vectors": unit(rng, 512).tolist(), "top_k": 40}).encode()
    if name == "terms":
        text = " ".join(f"w{n % WORDS}x{n}" if n % 2 else f"w{n % WORDS}" for n in range(200_000))
        texts = search_pb2.Texts(values=[text])
        return search_pb2.SearchRequest(index="many", texts=texts, mode=search_pb2.MODE_LEXICAL).SerializeToString()
    if name == "objects":
        head, tail = b'{"documents":[{"id":"x","text":"t","metadata":{"a":[', b"]}}]}"
        return head + b",".join([b"{}"] * (options.mb * (1 << 20) // 3 - 40)) + tail
    if name == "vectors":
        return search_message(unit(rng, 4096), "many", 100)
    return gzip.compress(b"\0" * (options.mb * 94 << 20), 9)


def ask_grpc(name, options, body):
    method = f"{SERVICE}Search"
    options_of = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    try:
        if name == "gzip-bomb":
            return send_compressed(options.address, method, body)
        with grpc.insecure_channel(options.address, options_of) as channel:
            answer = channel.unary_unary(method)(body, timeout=120)
    except grpc.RpcError as err:
        return err.code().name
    return f"OK, {len(answer) >> 20} MiB"


def send_compressed(address, method, body):
    """Send a compressed message as it is: gRPC's client would compress it again."""
    from h2.connection import H2Connection
    from h2.events import StreamEnded, StreamReset, TrailersReceived

    connection, sock = H2Connection(), socket.create_connection(address.rsplit(":", 1), timeout=120)
    connection.initiate_connection()
    headers = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", address), ("te", "trailers"),
               ("content-type", "application/grpc"), ("grpc-encoding", "gzip")]  # fmt: skip
    connection.send_headers(1, headers)
    rest, status = b"\1" + len(body).to_bytes(4, "big") + body, ""
    with sock:
        while True:
            room = min(connection.local_flow_control_window(1), connection.max_outbound_frame_size, len(rest))
            if rest and room:
                connection.send_data(1, rest[:room], end_stream=room == len(rest))
                rest = rest[room:]
                sock.sendall(connection.data_to_send())
                continue
            sock.sendall(connection.data_to_send())
            content = sock.recv(1 << 16)
            for event in connection.receive_data(content) if content else [StreamEnded()]:
                if headers := getattr(event, "headers", None):
                    status = dict(headers).get(b"grpc-status", status)
                if isinstance(event, StreamEnded | StreamReset | TrailersReceived):
                    return f"status {status.decode() if status else 'none'}"


def ask_http(name, options, body):
    connection = http_of(options.address, 120)
    path = "/v1/indexes/long/search" if name == "response-http" else "/v1/indexes/many/documents"
    try:
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return f"{answer.status}, {len(answer.read()) >> 20} MiB"
    except (OSError, http.client.HTTPException) as err:
        return type(err).__name__
    finally:
        connection.close()


def write_hostile_texts(address, ends, most):
    """Store texts of so many characters, each of one alphabet, and search them as fast as it goes."""
    answers = {}
    rng = np.random.default_rng(3)
    for number, text in enumerate(itertools.cycle(texts(most).values())):
        if time.monotonic() > ends and number:
            return answers
        document = {"id": f"x{number}", "text": f"a {text}"[:most], "metadata": {"x": number}}
        added = {"documents": [document], "views": [unit(rng, 1).tolist()]}
        asked = {"vector": unit(rng, 1)[0].tolist(), "text": "when did it begin", "filter": {"x": number}, "top_k": 1}
        for path, body in (("documents", added), ("search", asked), ("search", asked | {"mode": "lexical"})):
            connection = http_of(address, 120)
            connection.request(
                "POST", f"/v1/indexes/many/{path}", json.dumps(body), {"content-type": "application/json"}
            )
            answer = connection.getresponse()
            answer.read()
            connection.close()
            key = f"{path} {answer.status}"
            answers[key] = answers.get(key, 0) + 1
    return answers


def send_and_leave(address, count):
    """Send so many searches, and close each connection before it is answered."""
    host, port = address.rpartition("://")[2].rsplit(":", 1)
    body = json.dumps({"query": "w1 w2 w3 " * 50, "mode": "lexical", "top_k": 10}).encode()
    head = f"POST /v1/indexes/many/search HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    opened = [socket.create_connection((host, int(port)), timeout=10) for _ in range(count)]
    for sock in opened:
        sock.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
    for sock in opened:
        sock.close()


def open_sockets(name, address, count):
    """Open so many connections and begin something on each."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    host, port = address.rpartition("://")[2].rsplit(":", 1)
    context = ssl._create_unverified_context()
    context.set_alpn_protocols(["h2"])
    first = {
        "h2": PREFACE,
        "h2-tls": PREFACE,
        "tcp-https": b"",
        "slow-body": b"POST /v1/indexes/many/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: 1000\r\n\r\n{",
        "slow-head": b"GET / HTTP/1.1\r\nhost",
    }[name]
    opened, tried = [], 0
    # A server that takes no more would have every further try wait for its end.
    while len(opened) < count and tried - len(opened) < _MAX_FAILED:
        tried += 1
        with suppress(OSError):
            sock = socket.create_connection((host, int(port)), timeout=3)
            if name == "h2-tls":
                sock = context.wrap_socket(sock)
            sock.sendall(first)
            opened.append(sock)
    return opened


def table(rows):
    names = ("attack", "side", "memory_mb", "health_stall_ms", "health_failed", "p99_quiet_ms", "p99_apart_ms",
             "p99_ms", "p99_ratio", "search_failed")  # fmt: skip
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows)])


def main():
    parser = harness.parser(__doc__, documents=20_000, long_kb=100, sockets=1100)
    parser.add_argument("--before", help="the Python of another installation, measured too")
    parser.add_argument("--attacks", nargs="*", default=list(ATTACKS), choices=ATTACKS)
    parser.add_argument("--seconds", type=float, default=6, help="of each attack, and of quiet before it")
    parser.add_argument("--turns", type=int, default=3, help="into which these seconds are divided")
    parser.add_argument("--chars", type=int, default=MOST_CHARS, help="of each hostile text")
    parser.add_argument("--mb", type=int, default=16, help="of the largest bodies; the bomb inflates to 94 times that")
    parser.add_argument("--nice", type=int, default=19, help="of the attacker's process")
    parser.add_argument("--out", type=Path)
    for internal in ("--attack", "--address", "--folder", "--make"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    options = harness.parse(parser, seconds=0.5, turns=1, documents=1000, long_kb=10, sockets=60, mb=1,
                         attacks=["response", "objects", "vectors", "slow-head"])  # fmt: skip
    if options.attack:
        attack(options)
        return
    if options.make:
        make_indexes(Path(options.make), options)
        return
    sides = {"after": sys.executable} | ({"before": options.before} if options.before else {})
    rows = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for side, python in sides.items():
            make_with(python, folder / side, options)
        if {"h2-tls", "tcp-https"} & set(options.attacks):
            authority = Authority(folder / "tls")
            pair = authority.issue("server", hosts="IP:127.0.0.1,DNS:localhost")
            for source, name in zip((*pair, authority.cert), ("server.pem", "server.key", "ca.pem"), strict=True):
                for side in sides:
                    (folder / side / name).write_bytes(Path(source).read_bytes())
        for side in sides:
            shutil.copytree(folder / side, apart_of(folder / side))
        for name in options.attacks:
            for side, python in sides.items():
                rows.append({"side": side} | measure(python, name, folder / side, options))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    harness.save_rows(rows, options.out)
    print(table(rows))


if __name__ == "__main__":
    main()
