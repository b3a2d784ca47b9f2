"""One writer at a time, by claims that expire: Milvus has no locks and no compare-and-set.

A writer inserts a claim of its own, then reads all claims. Of two that come at the same time at least one sees the
other, as reads are strongly consistent, and gives way. A claim is renewed while its writer lives.
"""

from __future__ import annotations

import json
import logging
import os
import random
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from mvindex.errors import IndexLocked, MvindexError
from mvindex.retries import Retries
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.layout import FIRST_CLAIM_KEY, special_record
from mvindex_connectors.milvus.reader import Reader

logger = logging.getLogger(__name__)

_TRIES, _FIRST_PAUSE_S = 4, 0.4


class Lease:
    """The claim of one writer on one index; write inside hold()."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reader = Reader(connection, "Strong")
        self._key = FIRST_CLAIM_KEY - random.SystemRandom().getrandbits(40)
        self._seconds = connection.address.lease_s
        # When the request that wrote the claim was sent: by the clock that never jumps, and by that of the claim.
        self._written_at, self._written_time = 0.0, 0.0
        self._renewing = Lock()
        self._rival: Mapping[str, Any] | None = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Exclude other writers for the block; IndexLocked names the one that writes."""
        self._acquire()
        stop = Event()
        renewing = Thread(target=self._keep, args=(stop,), name="mvindex-milvus-lease", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            stop.set()
            renewing.join()
            # A claim that stays expires.
            with suppress(MvindexError):
                self._delete([self._key])

    def check(self) -> None:
        """Raise IndexLocked when the claim has expired or another writer has come; called before every commit."""
        if self._age() >= self._seconds / 2:
            self._renew()
        self.check_kept()

    def check_kept(self) -> None:
        """Raise IndexLocked when the claim has expired, for good, or another writer was seen; nothing is renewed."""
        age = self._age()
        if age < self._seconds and self._rival is None:
            return
        rival = self._rival
        with suppress(MvindexError):
            rival = rival or self._other()
        writer = "another may write" if rival is None else f"{_shown(rival)} writes"
        raise IndexLocked(
            f"{self._reader.where}: expected this writer to renew its claim within {self._seconds:.0f} s, and no other "
            f"writer, got {age:.0f} s of silence; {writer} here now. Nothing more is written; run it again"
        )

    def _age(self) -> float:
        """Return the seconds since the claim was written; the second clock goes on while a machine sleeps."""
        return max(time.monotonic() - self._written_at, time.time() - self._written_time)

    def _acquire(self) -> None:
        other: Mapping[str, Any] | None = None

        def claim() -> None:
            nonlocal other
            self._write(is_new=True)
            other = self._other()
            if other is not None:
                self._delete([self._key])
                where, writer = self._reader.where, _shown(other)
                raise IndexLocked(f"{where}: {writer} is writing to this index; try again when it is done")

        # Where both came at once, both give way: the next time they will not.
        both_are_new = lambda err: isinstance(err, IndexLocked) and bool(other and other.get("is_new"))  # noqa: E731 - a rule
        Retries(both_are_new, tries=_TRIES, first_s=_FIRST_PAUSE_S).run(claim)

    def _other(self) -> Mapping[str, Any] | None:
        """Return the claim of another live writer; remove those of dead ones."""
        dead, other = [], None
        for row in self._reader.query(f"pk <= {FIRST_CLAIM_KEY}", ["pk", "text"], "looking for other writers"):
            if int(row["pk"]) == self._key:
                continue
            claim = json.loads(row["text"])
            if claim["until"] < time.time() or _is_dead(claim):
                dead.append(int(row["pk"]))
            else:
                other = claim
        if dead:
            self._delete(dead)
        return other

    def _write(self, *, is_new: bool) -> None:
        """Write the claim; a renewal that is stored only after the claim has expired does not revive it."""
        sent_at = sent_time = 0.0

        def send(client: Any, **options: Any) -> None:
            nonlocal sent_at, sent_time
            if not is_new:
                self.check_kept()
            sent_at, sent_time = time.monotonic(), time.time()
            claim = {**_myself(), "until": sent_time + self._seconds, "is_new": is_new}
            row = special_record(self._key, json.dumps(claim))
            client.upsert(self._connection.address.collection, [row], **options)

        self._connection.call("claiming to be the writer", send)
        if is_new or self._age() < self._seconds:
            self._written_at, self._written_time = sent_at, sent_time

    def _delete(self, keys: list[int]) -> None:
        name = self._connection.address.collection
        self._connection.ask("removing a writer's claim", "delete", name, ids=keys)

    def _renew(self) -> None:
        """Write the claim again, then look for other writers: one that has just come gives way by itself."""
        with self._renewing:
            self._write(is_new=False)
            other = self._other()
            if other is not None and not other.get("is_new"):
                self._rival = other

    def _keep(self, stop: Event) -> None:
        """Renew the claim until the writer is done, or has lost it: check() raises then."""
        while not stop.wait(self._seconds / 4):
            try:
                self._renew()
            except IndexLocked:
                return
            except MvindexError as err:
                logger.info("cannot renew the writer's claim: %s", err)


def _myself() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "boot": _boot(), "started": _started(os.getpid())}


def _is_dead(claim: Mapping[str, Any]) -> bool:
    """Return whether the writer was a process of this machine, and is gone."""
    if (claim.get("host"), claim.get("boot")) != (socket.gethostname(), _boot()) or not claim.get("boot"):
        return False
    started = _started(int(claim["pid"]))
    return started != claim.get("started")


def _boot() -> str:
    """Return an id of this boot and process namespace; empty where it is unknown."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + namespace
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return when the process was started, in ticks; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _shown(claim: Mapping[str, Any]) -> str:
    left = max(0.0, claim.get("until", 0) - time.time())
    return f"process {claim.get('pid')} on {claim.get('host')} (its claim ends in {left:.0f} s unless renewed)"
