"""Calls to a server that is away: every client fails in the time that its settings say."""

import asyncio
import socket
import time
from contextlib import contextmanager

import pytest

import mvindex
from mvindex.errors import ConfigError, ServerUnavailable
from mvindex_connectors.remote import AsyncIndexClient, CallSettings, IndexClient, ShardedClient

QUICK = CallSettings(retry_s=0.6, connect_timeout_s=0.6)


@contextmanager
def refused():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    yield port


@contextmanager
def silent():
    """A port at which connections are made, and nobody speaks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def awaited(url):
    async with AsyncIndexClient(url, settings=QUICK) as client:
        await client.info()


@pytest.mark.parametrize("place", [refused, silent])
@pytest.mark.parametrize(
    "call",
    [
        lambda url: IndexClient(url, settings=QUICK),
        lambda url: asyncio.run(awaited(url)),
        lambda url: ShardedClient([url], settings=QUICK),
        lambda url: ShardedClient([url, url + "2"], settings=QUICK),
    ],
    ids=["blocking", "awaited", "one shard", "two shards"],
)
def test_a_call_to_a_dead_server_fails_in_the_time_that_is_set(place, call):
    with place() as port:
        begun = time.monotonic()
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            call(f"grpc://127.0.0.1:{port}/a")
        # The one attempt that began in time may take another connect_timeout_s.
        assert time.monotonic() - begun < 2


@pytest.mark.full
@pytest.mark.parametrize("place", [refused, silent])
def test_without_settings_it_takes_five_seconds(place):
    with place() as port:
        begun = time.monotonic()
        with pytest.raises(ServerUnavailable):
            mvindex.open(f"grpc://127.0.0.1:{port}/a")
        assert 2 < time.monotonic() - begun < 6


def test_a_timeout_that_is_no_number_of_seconds_is_named():
    with pytest.raises(ConfigError, match="connect_timeout_s: expected seconds, got 0"):
        CallSettings(connect_timeout_s=0)
