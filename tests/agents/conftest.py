"""An index of documents with sources, and the SDK's own client over stdio and HTTP."""

import asyncio
import os

import pytest

import mvindex
from tests.agents.mcp_serving import DOCUMENTS, command, listening


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mcp")
    with mvindex.create(folder / "docs.mvx", encoder="minilm-views") as index:
        index.add(DOCUMENTS)
    return folder


def run(transport, place, options, work):
    """Return what a function of a connected client returns, on a server with these options."""
    from mcp import Client, StdioServerParameters

    async def connected(server):
        async with Client(server) as client:
            return await work(client)

    if transport == "http":
        with listening(place, *options) as url:
            return asyncio.run(connected(url))
    first, *rest = command(place, *options)
    return asyncio.run(connected(StdioServerParameters(command=first, args=rest, env=dict(os.environ))))


@pytest.fixture(params=["stdio", "http"])
def session(request, folder):
    """Return run() on the index of the folder, or another, over either transport."""

    def connect(work, *options, index=None):
        return run(request.param, index or folder / "docs.mvx", options, work)

    return connect


@pytest.fixture
def stdio(folder):
    """Return run() on the index of the folder over stdio."""
    return lambda work, *options: run("stdio", folder / "docs.mvx", options, work)
