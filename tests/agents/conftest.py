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


def asked(server, work):
    """Return what a function of a client that is connected to the server returns."""
    from mcp import Client

    async def connected():
        async with Client(server) as client:
            return await work(client)

    return asyncio.run(connected())


def run(transport, place, options, work):
    """Return what a function of a connected client returns, on a server of its own with these options."""
    from mcp import StdioServerParameters

    if transport == "http":
        with listening(place, *options) as url:
            return asked(url, work)
    first, *rest = command(place, *options)
    return asked(StdioServerParameters(command=first, args=rest, env=dict(os.environ)), work)


@pytest.fixture(scope="session")
def url(folder):
    """The URL of a server without options on the index of the folder."""
    with listening(folder / "docs.mvx") as url:
        yield url


@pytest.fixture
def served(url):
    """Return asked() of the server that all tests share."""
    return lambda work: asked(url, work)


@pytest.fixture(params=["stdio", "http"])
def session(request, folder):
    """Return run() on the index of the folder, or another, over either transport."""

    def connect(work, *options, index=None):
        if request.param == "http" and not options and index is None:
            return asked(request.getfixturevalue("url"), work)
        return run(request.param, index or folder / "docs.mvx", options, work)

    return connect


@pytest.fixture
def stdio(folder):
    """Return run() on the index of the folder over stdio."""
    return lambda work, *options: run("stdio", folder / "docs.mvx", options, work)
