"""Which servers have which shards of an index, and calls to all at once; where a server is away, the next is asked."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import grpc

from mvindex.errors import (
    ConfigError,
    LimitExceeded,
    MvindexError,
    ServerFailed,
    ServerUnavailable,
    StoreError,
    TimedOut,
)
from mvindex.records import IndexInfo
from mvindex.retries import Retries
from mvindex.store.shard_layout import parse_place
from mvindex.v1 import service_pb2 as service
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.convert import info_from
from mvindex_connectors.remote.retry import (
    CallSettings,
    RetryBudget,
    RetryingChannel,
    closed_error,
    error_from_rpc,
    is_retryable,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A shard that failed is left out for so long where partial answers are allowed, so that no search waits for it.
_LEFT_OUT_S = 5.0
# The share of the time that is left, that a shard may take where the others can answer without it.
_SHARE = 0.5
# A shard whose call began with less of the timeout than this has not failed when the time is over.
_LATE = 0.05
_MAX_THREADS = 64
# Errors that leave a shard out where partial answers are allowed; others are the caller's.
_FAILED = (ServerUnavailable, ServerFailed, TimedOut, StoreError)


class Replicas:
    """Servers that have the same index. Safe to use from several threads."""

    def __init__(self, channels: Sequence[RetryingChannel], first: int = 0) -> None:
        """Take the channels of the servers, at least one; calls go to the first until it cannot be reached."""
        self.channels, self._first = tuple(channels), first

    @property
    def where(self) -> str:
        """The addresses."""
        return " or ".join(str(channel.address) for channel in self.channels)

    def one_by_chance(self) -> Replicas:
        """Return the servers for one operation, whose calls all go to one of them, since replicas may lag."""
        return Replicas(self.channels, random.randrange(len(self.channels)))  # noqa: NPY002 - replicas are alike

    @property
    def in_order(self) -> Sequence[RetryingChannel]:
        """The channels, from the one on that calls go to."""
        return self.channels[self._first :] + self.channels[: self._first]

    def call(self, method: str, make: Callable[[str], Any], deadline: float, *, retry_s: float | None = None) -> Any:
        """Return the response of the first server that can be reached.

        Args:
            method: The name of an idempotent method.
            make: Returns the request for the name that an index has on its server.
            deadline: When the call ends, by time.monotonic().
            retry_s: Seconds for an unreachable server to come back; those of the channels by default.

        Raises:
            MvindexError: Of the class that the server raised; ServerUnavailable when all servers are unreachable.

        """
        last = self.channels[0]

        def ask_each() -> Any:
            nonlocal last
            order = self.in_order
            for last in order:
                try:
                    response = _send(last, method, make(last.address.name), deadline)
                except grpc.RpcError as err:
                    if last is order[-1] or not is_retryable(err):
                        raise
                else:
                    self._first = self.channels.index(last)
                    return response

        try:
            return RetryBudget(last.settings, retry_s, deadline).run(ask_each)
        except grpc.RpcError as err:
            raise error_from_rpc(last.address, err) from None


def _send(channel: RetryingChannel, method: str, request: Any, deadline: float) -> Any:
    call = getattr(MvindexServiceStub(channel.grpc_channel), method)
    left = max(deadline - time.monotonic(), 0.001)
    try:
        return call(request, timeout=left, metadata=channel.metadata())
    except ValueError as err:
        raise closed_error(channel.address) from err


@dataclass(frozen=True, slots=True)
class ServedShard:
    """One shard: its number, the servers that have it, and its description when it was found."""

    number: int
    replicas: Replicas
    info: IndexInfo


@dataclass(frozen=True, slots=True)
class Placement:
    """The shards that are served.

    Attributes:
        shards: By number.
        count: Number of shards of the whole index.
        missing: The others, with the reason.
        is_by_id: Whether a document's id determines its shard, as in an index that mvindex has split.

    """

    shards: Mapping[int, ServedShard]
    count: int
    missing: Mapping[int, MvindexError]
    is_by_id: bool

    @property
    def is_one_index(self) -> bool:
        """Whether all servers have one index, which is no shard."""
        return self.count == 1 and not self.is_by_id and not self.missing


class ShardCall(NamedTuple):
    """A call to one shard: make returns the request for the name that the index has on its server."""

    shard: ServedShard
    make: Callable[[str], Any]


class ShardCalls:
    """Calls to all shards at once, with one deadline for all that an operation takes."""

    def __init__(self, channels: Sequence[RetryingChannel], settings: CallSettings, *, allow_partial: bool) -> None:
        """Ask the servers which shards they have; see Placement.

        Raises:
            ConfigError: When the addresses are not those of shards of one index.
            MvindexError: Naming the shard that is missing, unless partial answers are allowed.

        """
        self._channels, self._settings, self.allow_partial = channels, settings, allow_partial
        self._pool = ThreadPoolExecutor(min(_MAX_THREADS, 4 * len(channels)), thread_name_prefix="shards")
        self._failed_at: dict[int, tuple[float, MvindexError]] = {}
        self._search_for_missing: Future[None] | None = None
        self._refreshed()

    def close(self) -> None:
        """End calls in progress."""
        for channel in self._channels:
            channel.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def refresh(self) -> None:
        """Ask the servers again which shards they have."""
        self._refreshed()

    def _refreshed(self) -> None:
        self.placement, self._failed_at, self._found_at = self._found(), {}, time.monotonic()
        for number, error in self.placement.missing.items():
            logger.warning("shard %d of %d: %s; it is left out", number, self.placement.count, error)

    @property
    def missing(self) -> tuple[int, ...]:
        """The numbers of the shards that are left out."""
        return tuple(sorted({*self.placement.missing, *self._left_out()}))

    @property
    def where(self) -> str:
        """The addresses, with commas between."""
        return ",".join(str(channel.address) for channel in self._channels)

    @property
    def first_info(self) -> IndexInfo:
        """The description of the first shard; in what searches depend on, all are alike."""
        return self.placement.shards[min(self.placement.shards)].info

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None while all shards are empty and no setting determines it."""
        return next((shard.info.dim for shard in self.placement.shards.values() if shard.info.dim is not None), None)

    def deadline(self) -> float:
        """Return when an operation that begins now ends."""
        return time.monotonic() + self._settings.timeout_s

    def attempt(self, read: Callable[[Attempt], T], deadline: float | None = None) -> T:
        """Return what `read` returns; where partial answers are allowed, without the shards that fail."""
        deadline = self.deadline() if deadline is None else deadline
        failed: dict[int, MvindexError] = {}
        shards: list[ServedShard] = []

        def once() -> T:
            nonlocal shards
            self._look_for_missing()
            left_out = {**self._left_out(), **failed}
            shards = [shard for number, shard in sorted(self.placement.shards.items()) if number not in left_out]
            if not shards:
                raise next(iter(left_out.values()))
            shards = [replace(shard, replicas=shard.replicas.one_by_chance()) for shard in shards]
            return read(Attempt(self, shards, tuple(sorted({*self.placement.missing, *left_out})), deadline))

        def leave_out(err: Exception) -> bool:
            """Leave a shard that failed out for a while where partial answers are allowed; return whether it is."""
            if not isinstance(err, _ShardFailed) or not self.allow_partial or len(shards) == 1:
                return False
            logger.warning("%s; it is left out", err.error)
            self._failed_at[err.number] = time.monotonic(), err.error
            failed[err.number] = err.error
            return True

        try:
            return Retries(leave_out).run(once)
        except _ShardFailed as err:
            raise err.error from err

    def _look_for_missing(self) -> None:
        """Begin to ask for the shards that were missing a while ago; the operations after that know of them."""
        is_due = time.monotonic() - self._found_at >= _LEFT_OUT_S
        is_asking = self._search_for_missing is not None and not self._search_for_missing.done()
        if self.placement.missing and is_due and not is_asking:
            with suppress(RuntimeError):  # the client is closed
                self._search_for_missing = self._pool.submit(self._find_missing)

    def _find_missing(self) -> None:
        try:
            found = self._found()
            if len(found.missing) < len(self.placement.missing):
                self.placement = found
        except MvindexError as err:
            logger.warning("%s: shards %s are still left out: %s", self.where, list(self.placement.missing), err)
        finally:
            self._found_at = time.monotonic()

    def owner(self, attempt: Attempt, number: int, doc_id: str) -> ServedShard:
        """Return the shard of a document; its error, which names the id, when it is missing."""
        for shard in attempt.shards:
            if shard.number == number:
                return shard
        reason = self.placement.missing.get(number) or self._failed_at.get(number, (0.0, "it was a moment ago"))[1]
        raise StoreError(f"document {doc_id!r} belongs to a shard that is missing: {reason}")

    def run(self, calls: Sequence[ShardCall], method: str, deadline: float, *, share: float = 1.0) -> list[Any]:
        """Return the response to each call; all are sent at once. share: of the time that is left, for these calls."""
        until = deadline - (1 - share) * max(deadline - time.monotonic(), 0.0)

        def one(call: ShardCall) -> Any:
            is_late = until - time.monotonic() < _LATE * self._settings.timeout_s
            with self.errors(call.shard, is_late=is_late):
                retry_s = 0.0 if self.allow_partial else None
                return call.shard.replicas.call(method, call.make, until, retry_s=retry_s)

        if len(calls) == 1:
            return [one(calls[0])]
        futures = [self._pool.submit(one, call) for call in calls]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    @contextmanager
    def errors(self, shard: ServedShard, *, is_late: bool) -> Iterator[None]:
        """Make errors inside name the shard, and let attempt() leave it out unless it was asked too late."""
        try:
            yield
        except (*_FAILED, LimitExceeded) as err:
            named = self.named(shard, err)
            if isinstance(err, _FAILED) and not (is_late and isinstance(err, TimedOut)):
                raise _ShardFailed(shard.number, named) from err
            raise named from err

    def named(self, shard: ServedShard, err: MvindexError) -> MvindexError:
        """Return an error that names the shard."""
        place = "" if self.placement.is_one_index else f"shard {shard.number} of {self.placement.count}: "
        return type(err)(f"{place}{_with_address(shard.replicas, err)}")

    def _left_out(self) -> dict[int, MvindexError]:
        """Return the shards that failed a moment ago."""
        now = time.monotonic()
        return {number: err for number, (at, err) in list(self._failed_at.items()) if now - at < _LEFT_OUT_S}

    def _found(self) -> Placement:
        begun = time.monotonic()
        infos, failed = self._asked(list(enumerate(self._channels)), waits=len(self._channels) == 1)
        is_early = time.monotonic() - begun < self._settings.retry_s
        if failed and is_early and not self.allow_partial and (not infos or self._placed(infos, failed).missing):
            # A server may be restarting at this moment: what it has is not known yet.
            more, failed = self._asked([(position, channel) for position, channel, _ in failed], waits=True)
            infos += more
        if not infos:
            raise failed[0][2]
        _check_alike([(str(channel.address), info) for channel, info in infos])
        placement = self._placed(infos, failed)
        for number, error in placement.missing.items():
            if not self.allow_partial:
                raise type(error)(f"shard {number} of {placement.count} is missing: {error}") from error
        return placement

    def _asked(
        self, channels: Sequence[tuple[int, RetryingChannel]], *, waits: bool
    ) -> tuple[list[tuple[RetryingChannel, IndexInfo]], list[tuple[int, RetryingChannel, MvindexError]]]:
        """Return what the servers have, and the positions and errors of those that fail; waits: retry for a while."""
        infos: list[tuple[RetryingChannel, IndexInfo]] = []
        failed: list[tuple[int, RetryingChannel, MvindexError]] = []
        asked = [self._pool.submit(self._info, channel, waits) for _, channel in channels]
        for (position, channel), future in zip(channels, asked, strict=True):
            try:
                infos.append((channel, future.result()))
            except (ServerUnavailable, ServerFailed, TimedOut, StoreError) as err:
                failed.append((position, channel, err))
        return infos, failed

    def _info(self, channel: RetryingChannel, waits: bool) -> IndexInfo:
        deadline = time.monotonic() + self._settings.timeout_s
        retry_s = None if waits else 0.0
        response = Replicas([channel]).call(
            "Info", lambda name: service.InfoRequest(index=name), deadline, retry_s=retry_s
        )
        return info_from(response, str(channel.address))

    def _placed(
        self,
        infos: Sequence[tuple[RetryingChannel, IndexInfo]],
        failed: Sequence[tuple[int, RetryingChannel, MvindexError]],
    ) -> Placement:
        by_number: dict[int, list[tuple[RetryingChannel, IndexInfo]]] = {}
        if all(info.shard is None for _, info in infos):
            return self._placed_wholes(infos, failed)
        counts = set()
        for channel, info in infos:
            if info.shard is None:
                other = next(str(channel.address) for channel, info in infos if info.shard is not None)
                raise ConfigError(f"{channel.address}: expected a shard of an index, as {other} is, got a whole index")
            place = parse_place(info.shard)
            counts.add(place.count)
            by_number.setdefault(place.number, []).append((channel, info))
        if len(counts) > 1:
            raise ConfigError(
                f"{self._channels[0].address}: expected shards of one index, got shards of {sorted(counts)}"
            )
        _check_one_index(by_number)
        count = counts.pop()
        reasons = [err for _, _, err in failed] or [StoreError("none of the addresses serves it")]
        if len(by_number) == count:
            for _, channel, err in failed:
                logger.warning("%s: %s; other servers have all shards", channel.address, err)
        missing = {number: reasons[0] for number in range(count) if number not in by_number}
        return Placement(self._served(by_number), count, missing, True)

    def _placed_wholes(
        self,
        infos: Sequence[tuple[RetryingChannel, IndexInfo]],
        failed: Sequence[tuple[int, RetryingChannel, MvindexError]],
    ) -> Placement:
        """Return where indexes that are no shards lie; servers of one index are its replicas."""
        positions = {channel: position for position, channel in enumerate(self._channels)}
        by_id: dict[str, list[tuple[RetryingChannel, IndexInfo]]] = {}
        for channel, info in sorted(infos, key=lambda each: positions[each[0]]):
            by_id.setdefault(info.index_id or str(channel.address), []).append((channel, info))
        by_number = {positions[own[0][0]]: own for own in by_id.values()}
        missing = {position: err for position, _, err in failed}
        return Placement(self._served(by_number), len(by_number) + len(missing), missing, False)

    def _served(self, by_number: Mapping[int, Sequence[tuple[RetryingChannel, IndexInfo]]]) -> dict[int, ServedShard]:
        return {
            number: ServedShard(number, Replicas([channel for channel, _ in own]), own[0][1])
            for number, own in by_number.items()
        }


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of an operation: the shards that it reads, those that it leaves out, and when it ends.

    All its calls to a shard go to one replica, so that they see one state, or later ones of it.
    """

    calls: ShardCalls
    shards: Sequence[ServedShard]
    missing: tuple[int, ...]
    deadline: float

    def ask(self, method: str, calls: Sequence[ShardCall]) -> list[Any]:
        """Return the response to each call; all are sent at once.

        A shard that may be left out does not get all of the time, so that the others can answer after it.
        """
        share = _SHARE if self.calls.allow_partial and len(self.shards) > 1 else 1.0
        return self.calls.run(calls, method, self.deadline, share=share)

    def ask_all(self, method: str, make: Callable[[str], Any]) -> list[Any]:
        """Return the response of each shard to the same request."""
        return self.ask(method, [ShardCall(shard, make) for shard in self.shards])

    def ask_any(self, method: str, make: Callable[[str], Any]) -> Any:
        """Return the response of any shard, for a question to which all have the same response."""
        if self.calls.allow_partial:
            return self.ask(method, [ShardCall(self.shards[0], make)])[0]
        channels = [channel for shard in self.shards for channel in shard.replicas.in_order]
        return Replicas(channels).call(method, make, self.deadline)


class _ShardFailed(MvindexError):
    """A shard could not be read, and may be left out."""

    def __init__(self, number: int, error: MvindexError) -> None:
        super().__init__(str(error))
        self.number, self.error = number, error


def _with_address(replicas: Replicas, err: MvindexError) -> str:
    """Return the error's message, with the addresses if it names none."""
    is_named = any(str(channel.address) in str(err) for channel in replicas.channels)
    return str(err) if is_named else f"{replicas.where}: {err}"


def _check_one_index(by_number: Mapping[int, Sequence[tuple[RetryingChannel, IndexInfo]]]) -> None:
    """Raise ConfigError when servers of one shard have different ones, or the shards are of different indexes.

    Shards that were made before their index had an id, or never were assembled, are not compared.
    """
    wholes: dict[str, RetryingChannel] = {}
    for number, own in sorted(by_number.items()):
        ids: dict[str, RetryingChannel] = {}
        for channel, info in own:
            if info.index_id is not None:
                ids.setdefault(info.index_id, channel)
            if info.whole_id is not None:
                wholes.setdefault(info.whole_id, channel)
        if len(ids) > 1:
            (known, first), (other, second) = list(ids.items())[:2]
            raise ConfigError(
                f"{second.address}: expected shard {number} with the index_id {known}, as {first.address} has, got "
                f"{other}: replicas are servers of one shard, or of its snapshots"
            )
    if len(wholes) > 1:
        (known, first), (other, second) = list(wholes.items())[:2]
        raise ConfigError(
            f"{second.address}: expected a shard of the index {known} (whole_id), as {first.address} has, got one of "
            f"{other}"
        )


def _check_alike(infos: Iterable[tuple[str, IndexInfo]]) -> None:
    """Raise ConfigError when two indexes cannot be searched as one, naming what differs."""
    first: dict[str, tuple[str, Any]] = {}
    for address, info in infos:
        encoder = None if info.encoder is None else info.encoder.get("fingerprint")
        values = {
            "encoder": encoder,
            "dim": info.dim,
            "dtype": info.dtype,
            "temperature": info.temperature,
            "lexical": info.lexical,
            "fusion": json.dumps(info.fusion, sort_keys=True),
            "confidence": json.dumps(info.confidence, sort_keys=True),
        }
        for name, value in values.items():
            if name == "dim" and value is None:
                continue
            other, known = first.setdefault(name, (address, value))
            if known != value:
                raise ConfigError(
                    f"{address}: expected an index with {name} {known!r}, as {other} has, got {value!r}; "
                    "shards that are searched as one are made alike"
                )
