"""The server of the `milvus` 2.3.5 wheel, run in a network namespace of its own where that is allowed.

Its ports are fixed and open to all interfaces; in a namespace of its own nothing else reaches them. A forwarder, one
foot here and one there, gives it a port of ours on loopback. As a program: forward PID PORT, or run DIR.
"""

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

# Where .ci/run makes it.
DEFAULT_VENV = Path(__file__).parents[2] / "build" / "milvus-server"
VENV_VARIABLE = "MVINDEX_MILVUS_SERVER_VENV"
PORT = 19530
# Looks more often for what is to be loaded and read: most of the seconds of a test are waits for that.
QUICK = (
    "queryCoord.checkInterval=100",
    "queryCoord.distPullInterval=100",
    "queryNode.stats.publishInterval=200",
    "proxy.timeTickInterval=50",
)
_CLONE_NEWNET, _PR_SET_PDEATHSIG = 0x40000000, 1
_START_S = 120


def server_python():
    """The interpreter that has the wheel, or None."""
    python = Path(os.environ.get(VENV_VARIABLE, DEFAULT_VENV)) / "bin" / "python"
    found = list(python.parent.parent.glob("lib/python*/site-packages/milvus/__init__.py"))
    return python if python.exists() and found else None


def is_here():
    """Return whether a server can start here: the wheel is installed and a namespace can be made."""
    return server_python() is not None and shutil.which("unshare") is not None and bool(_unshare())


def _unshare():
    for command in (["unshare", "-n"], ["unshare", "-rn"]):
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return []


class MilvusServer:
    """A server over a directory of its own; kill() and start() again keep what it holds."""

    def __init__(self, directory, settings=(), pem=None):
        """settings: NAME=VALUE of Milvus' configuration; pem: the certificate, where they turn on TLS."""
        self._directory, self._settings, self._pem = Path(directory), list(settings), pem
        self._launcher = self._forwarder = None
        self.pid = self.port = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def start(self):
        log = open(self._directory / "server.log", "ab")  # noqa: SIM115 - its child keeps it
        with log:
            inside = 'ip link set lo up; exec "$@"'
            run = [str(server_python()), __file__, "run", str(self._directory / "data"), *self._settings]
            command = [*_unshare(), "bash", "-c", inside, "bash", *run]
            self._launcher = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        line = self._launcher.stdout.readline()
        if not line.strip():
            raise RuntimeError(f"the server did not start; see {self._directory / 'server.log'}")
        self.pid = int(line.split()[0])
        if self._forwarder is None:
            self.port = _free_port()
        self._forward()
        self._wait()

    def _forward(self):
        self.cut()
        command = [sys.executable, __file__, "forward", str(self.pid), str(self.port)]
        # It lives as long as its stdin: the signal of a parent's end comes with the end of the thread that forked.
        self._forwarder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._forwarder.stdout.readline().strip() == "ready"

    def cut(self):
        """Cut the network: no client reaches the server until mend()."""
        if self._forwarder is not None:
            self._forwarder.kill()
            self._forwarder.wait()
            self._forwarder.stdin.close()
            self._forwarder.stdout.close()
            self._forwarder = None

    def mend(self):
        """Mend the network: clients reach the server again, at the same port."""
        self._forward()

    def _wait(self):
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(Exception):
                client = self._client(5)
                try:
                    client.list_collections(timeout=5)
                    return
                finally:
                    client.close()
            assert time.monotonic() < deadline, "the server did not answer"
            time.sleep(0.3)

    def _client(self, timeout):
        from pymilvus import MilvusClient

        options = {"token": "root:Milvus"} if "common.security.authorizationEnabled=true" in self._settings else {}
        if self._pem is not None:
            options |= {"secure": True, "server_pem_path": str(self._pem), "server_name": "localhost"}
        scheme = "http" if self._pem is None else "https"
        return MilvusClient(f"{scheme}://127.0.0.1:{self.port}", timeout=timeout, dedicated=True, **options)

    def kill(self):
        """Kill the server by SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._launcher.wait()
        self._launcher.stdout.close()

    def pause(self):
        """Pause the server: it answers no client until resume()."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def stop(self):
        self.cut()
        self.kill()

    def url(self, name, query=""):
        """The address of an index of that name."""
        return f"milvus://127.0.0.1:{self.port}/{name}{query}"

    @contextlib.contextmanager
    def collection(self, query=""):
        """Inside it, the address of no index yet; afterwards its collections are gone."""
        name = f"t{secrets.token_hex(6)}"
        try:
            yield self.url(name, query)
        finally:
            self.drop(name)

    def drop(self, name):
        client = self._client(30)
        for each in (f"{name}_views", name):
            if client.has_collection(each):
                client.drop_collection(each)
        client.close()


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _run(directory, settings):
    """Run the server as a child of this process, which has the wheel; it dies with it."""
    from milvus import MilvusServer as Wheel
    from milvus import MilvusServerConfig

    server = Wheel(MilvusServerConfig(), wait_for_started=False)
    server.set_base_dir(directory)
    for setting in ["common.gracefulStopTimeout=1", *settings]:
        key, value = setting.split("=", 1)
        value = {"true": True, "false": False}.get(value, int(value) if value.isdigit() else value)
        server.config.configs[key] = value
        server.config.set(key, value)
    server.start()
    _end_with_parent(lambda: server.server_proc.kill())
    print(server.server_proc.pid, flush=True)
    server.server_proc.wait()


def _end_with_parent(clean):
    """End this process, after its cleanup, when the tests end in any way."""

    def end(number, frame):
        clean()
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end_with_stdin():
    """Wait for the tests to end in any way, which closes their end of the pipe."""
    sys.stdin.buffer.read()
    os._exit(1)


def _forward_to(pid, port):
    """Forward connections at this port into the network of that process, for ever."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    with open(f"/proc/{pid}/ns/net") as namespace:
        # Sockets stay in the network that they were made in: the listener here, those made from now on there.
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    print("ready", flush=True)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_carry, args=(client,), daemon=True).start()


def _carry(client):
    try:
        far = socket.create_connection(("127.0.0.1", PORT), timeout=10)
    except OSError:
        client.close()
        return
    far.settimeout(None)
    for one in (client, far):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=_pump, args=(far, client), daemon=True).start()
    _pump(client, far)


def _pump(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 18):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


if __name__ == "__main__":
    if sys.argv[1] == "run":
        _run(sys.argv[2], sys.argv[3:])
    else:
        _forward_to(int(sys.argv[2]), int(sys.argv[3]))
