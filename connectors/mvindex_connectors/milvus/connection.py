"""A connection to Milvus: calls have timeouts, are retried, and raise our errors."""

from __future__ import annotations

import logging
import os
import socket
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from mvindex.errors import ConfigError, EngineUnavailable, MvindexError, StoreError
from mvindex.plugins import require
from mvindex.retries import Retries
from mvindex_connectors.milvus.address import Address

T = TypeVar("T")
logger = logging.getLogger(__name__)

# Parts of the server's messages while a collection comes up after a restart or a build.
_NOT_READY = ("not loaded", "not fully loaded", "state 'released'", "loading", "channel not available", "no available")
_NODE_NOT_READY = ("node not found", "not ready", "not healthy", "unhealthy", "shard delegator", "service unavailable")
# And while it is away. A wrong token gives one of these too, but at connect, which is not retried.
_BROKEN = ("statuscode.unavailable", "rate limit", "connection reset", "fail connecting", "closed channel")
_FIRST_PAUSE_S = 0.05
_POLL_S = 0.1
# Longest wait until a server is reached, before it is asked anything.
_REACH_S = 4.0
# Connections of this process to each Lite database.
_lite_users: Counter[str] = Counter()
_lite_lock = Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFeatures:
    """The version of a Milvus and what it can do.

    kinds: of indexes that are known to be built there; has_sparse: whether it has sparse vectors, for lexical search.
    """

    server: str
    is_lite: bool
    kinds: tuple[str, ...]
    max_limit: int = 16_384
    max_dim: int = 32_768
    has_sparse: bool = False
    # Not used, as searches must be correct: see docs/how-to/milvus.md.
    group_by: str = "not used"


class Connection:
    """One client of one Milvus, and the collections of one index there."""

    def __init__(self, address: Address, connect_s: float | None = None) -> None:
        """Connect; EngineUnavailable, with the address, when no server responds, within 4 s where none is reached.

        connect_s: Longest wait for its first response; by default as for any.
        """
        self.address = address
        self._is_closed = False
        self._guard: Callable[[], None] = _allow
        self._client = _connected(address, address.timeout_s if connect_s is None else connect_s)
        if address.is_lite:
            _use_lite(address.uri)
        try:
            version = self.ask("asking for the version", "get_server_version")
        except BaseException:
            self.close()
            raise
        self.features = _features_of(str(version))

    def close(self) -> None:
        """Close the connection, and with it a Lite database."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(Exception):  # noqa: BLE001 - nothing is lost by a connection that does not close
            self._client.close()
        if self.address.is_lite:
            _release_lite(self.address.uri)

    def guarded(self, guard: Callable[[], None]) -> Connection:
        """Return this connection with a guard of its own; close this one.

        guard: called before every try of a call, and before its result is returned; it raises to refuse.
        """
        guarded = copy(self)
        guarded._guard = guard  # noqa: SLF001 - its own
        return guarded

    def call(self, step: str, function: Callable[..., T]) -> T:
        """Return the result of the function, called with the client and timeout=; retry while the collection comes up.

        Args:
            step: The step, for messages.
            function: An idempotent call.

        Raises:
            StoreError: Or EngineUnavailable, with server and step.

        """

        def again(err: Exception) -> bool:
            may_pass = not isinstance(err, MvindexError) and _is_passing(err)
            if may_pass:
                self._load_again(err)
            return may_pass

        def attempt() -> T:
            self._guard()
            returned = function(self._client, timeout=max(1.0, retries.ends - time.monotonic()))
            self._guard()
            return returned

        retries = Retries(again, first_s=_FIRST_PAUSE_S, for_s=self.address.timeout_s)
        try:
            return retries.run(attempt)
        except MvindexError:
            raise
        except Exception as err:  # noqa: BLE001 - pymilvus raises its own, gRPC's and plain ones
            raise _map_error(err, self.address, step) from err

    def ask(self, step: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Return what a method of the client returns; errors as of call()."""
        return self.call(step, lambda client, **timeout: getattr(client, method)(*arguments, **options, **timeout))

    def load(self, *collections: str) -> None:
        """Load the collections for searching, side by side, as each takes a server seconds."""
        left = [
            name for name in collections if not _is_loaded(self.ask("asking for its state", "get_load_state", name))
        ]
        for name in left:
            self.ask("loading", "load_collection", name, _async=True)
        for name in left:
            self.call(
                "waiting for it to be loaded",
                lambda client, name=name, **options: _wait_loaded(client, name, options),
            )

    def _load_again(self, err: Exception) -> None:
        """Load a Lite collection that a new process released; a server does that itself."""
        if "released" not in str(err).lower() and "not loaded" not in str(err).lower():
            return
        for name in (self.address.collection, *(of(self.address.collection) for of in (views_of, terms_of))):
            with suppress(Exception):  # noqa: BLE001 - the call itself is tried again, and tells
                self._client.load_collection(name, timeout=self.address.timeout_s)

    def described(self) -> dict[str, Any]:
        """Return what `mvindex info` shows of the server."""
        return {**asdict(self.features), "kinds": list(self.features.kinds)}


def _allow() -> None:
    """Refuse nothing."""


def views_of(collection: str) -> str:
    """Return the name of the collection of an index's views."""
    return f"{collection}_views"


def terms_of(collection: str) -> str:
    """Return the name of the collection of an index's terms."""
    return f"{collection}_terms"


def _use_lite(path: str) -> None:
    with _lite_lock:
        _lite_users[path] += 1


def _release_lite(path: str) -> None:
    """Close the database with the last connection of this process: pymilvus leaves it open till the end."""
    with _lite_lock:
        _lite_users[path] -= 1
        if _lite_users[path] > 0:
            return
        del _lite_users[path]
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(path)


def _check_reachable(address: Address) -> None:
    """Raise EngineUnavailable where no connection opens, for which gRPC would wait as long as for a response."""
    parts = urlsplit(address.uri)
    host = str(parts.hostname)
    if getproxies() and not proxy_bypass(host):
        return
    try:
        socket.create_connection((host, int(parts.port or 0)), min(_REACH_S, address.timeout_s)).close()
    except OSError as err:
        raise _none_answers(f"{address.shown}: connecting ({_reason(err)})") from err


def _connected(address: Address, connect_s: float) -> Any:
    # gRPC and pymilvus write to stderr what they also raise.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # A fork in this process, such as Lite's, would stop at gRPC's handlers.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pymilvus = require("pymilvus", "milvus", "an index in Milvus")
        if address.is_lite:
            require("milvus_lite", "milvus", "an index in Milvus Lite")
            _check_lite_path(address)
        else:
            _check_reachable(address)
    # grpc._server is that of Lite, in this process: it logs what it then answers.
    for name in ("pymilvus", "milvus_lite", "grpc._server"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    options: dict[str, Any] = {"uri": address.uri, "timeout": connect_s, "dedicated": True}
    if address.token:
        options["token"] = address.token
    if address.database:
        options["db_name"] = address.database
    if address.tls:
        options["secure"] = True
        if address.pem is not None:
            options["server_pem_path"] = address.pem
        if address.server_name:
            options["server_name"] = address.server_name
    try:
        return pymilvus.MilvusClient(**options)
    except Exception as err:  # noqa: BLE001 - pymilvus raises its own, gRPC's and plain ones
        raise _map_error(err, address, "connecting") from err


def _check_lite_path(address: Address) -> None:
    path = Path(address.uri)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{address.shown}: expected a directory, as a Milvus Lite database is one, got a file")
    if not path.parent.is_dir():
        raise StoreError(f"{address.shown}: expected an existing directory {path.parent}, got none")


def _wait_loaded(client: Any, collection: str, options: dict[str, Any]) -> None:
    deadline = time.monotonic() + options["timeout"]
    while not _is_loaded(client.get_load_state(collection, **options)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"collection {collection!r} is still not loaded")
        time.sleep(_POLL_S)


def _is_loaded(state: dict[str, Any]) -> bool:
    return str(getattr(state.get("state"), "name", state.get("state"))) == "Loaded"


def _features_of(version: str) -> ServerFeatures:
    from mvindex_connectors.milvus.kinds import FIRST_SPARSE, kinds_of, version_of

    is_lite = version.startswith("milvus_lite")
    has_sparse = is_lite or version_of(version) >= FIRST_SPARSE
    return ServerFeatures(server=version, is_lite=is_lite, kinds=kinds_of(version, is_lite), has_sparse=has_sparse)


def _is_passing(err: Exception) -> bool:
    """Return whether the error ends by itself: a restart, a load, a rate limit, a broken connection."""
    text = f"{type(err).__name__} {err}".lower()
    return any(word in text for word in (*_BROKEN, *_NOT_READY, *_NODE_NOT_READY))


def _reason(err: Exception) -> str:
    """Return the reason of an error in one line, without pymilvus' wrapping."""
    text = str(getattr(err, "message", "") or err) or type(err).__name__
    return " ".join(text.split())[:300]


def _map_error(err: Exception, address: Address, step: str) -> MvindexError:
    text, where = str(err), f"{address.shown}: {step}"
    if address.is_lite and "open local milvus failed" in text.lower():
        return StoreError(f"{where}: another process has this database open, or it cannot be read ({_cause(err)})")
    if "DEADLINE_EXCEEDED" in text or isinstance(err, TimeoutError) or "Retry timeout" in text:
        return EngineUnavailable(
            f"{where}: no answer within {address.timeout_s:g} s; timeout= in the address gives more ({_reason(err)})"
        )
    if "server unavailable" in text or "Fail connecting" in text or "UNAVAILABLE" in text:
        return _none_answers(where)
    if "PERMISSION_DENIED" in text or "UNAUTHENTICATED" in text or "permission deny" in text:
        return StoreError(f"{where}: the server refuses this user: {_reason(err)}")
    if "RESOURCE_EXHAUSTED" in text:
        return StoreError(f"{where}: the request is too large for the server: {_reason(err)}")
    return StoreError(f"{where}: {_reason(err)}")


def _none_answers(where: str) -> EngineUnavailable:
    return EngineUnavailable(
        f"{where}: no Milvus answers there, or it refuses the token: is it running, are MVINDEX_MILVUS_TOKEN and "
        "tls= right?"
    )


def _cause(err: Exception) -> str:
    cause = err.__cause__ or err.__context__
    return _reason(cause) if isinstance(cause, Exception) else _reason(err)
