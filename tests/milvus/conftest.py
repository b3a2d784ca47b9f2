"""The folder of these tests on the path; one Milvus server for all those of a process that ask for one."""

import contextlib
import os
import secrets
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from milvus_server import QUICK, MilvusServer  # noqa: E402 - beside this file


# Of the package: it takes an eighth of a core while nothing is asked of it.
@pytest.fixture(scope="package")
def server(tmp_path_factory):
    """A real Milvus, in a network of its own."""
    with MilvusServer(tmp_path_factory.mktemp("milvus"), QUICK) as running:
        yield running


@pytest.fixture
def address(server, request):
    """An address of no index yet; what is made there is dropped afterwards."""
    with server.collection() as place:
        yield place


@contextlib.contextmanager
def newer_collection():
    """Inside it, the address of no index yet on the server that MVINDEX_MILVUS_URI names; afterwards it is gone."""
    from mvindex_connectors.milvus.address import parse_address
    from mvindex_connectors.milvus.collections import drop_store
    from mvindex_connectors.milvus.connection import Connection

    given = os.environ["MVINDEX_MILVUS_URI"]
    host, _, query = given.rpartition("://")[2].partition("?")
    settings = [query] * bool(query) + ["tls=1"] * given.startswith("https://")
    address = f"milvus://{host.rstrip('/')}/t{secrets.token_hex(6)}" + "?" * bool(settings) + "&".join(settings)
    try:
        yield address
    finally:
        connection = Connection(parse_address(address))
        drop_store(connection)
        connection.close()


@pytest.fixture
def newer_address():
    """An address of no index yet on a newer server."""
    with newer_collection() as place:
        yield place


@pytest.fixture(
    params=[
        pytest.param("lite", marks=pytest.mark.needs("milvus-lite")),
        pytest.param("server", marks=pytest.mark.needs("milvus-server")),
        pytest.param("newer", marks=pytest.mark.needs("milvus-newer")),
    ]
)
def place(request, tmp_path):
    """The address of no index yet, in Lite, on a real server, and on a newer one where there is one."""
    if request.param == "lite":
        yield f"milvus-lite:{tmp_path / 'index.db'}"
        return
    if request.param == "newer":
        with newer_collection() as address:
            yield address
        return
    with request.getfixturevalue("server").collection() as address:
        yield address
