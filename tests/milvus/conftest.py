"""The folder of these tests on the path; one Milvus server for all tests of a run that ask for one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from milvus_server import MilvusServer  # noqa: E402 - beside this file


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A real Milvus, in a network of its own."""
    with MilvusServer(tmp_path_factory.mktemp("milvus")) as running:
        yield running


@pytest.fixture
def address(server, request):
    """An address of no index yet; what is made there is dropped afterwards."""
    with server.collection() as place:
        yield place


@pytest.fixture(
    params=[
        pytest.param("lite", marks=pytest.mark.needs("milvus-lite")),
        pytest.param("server", marks=pytest.mark.needs("milvus-server")),
    ]
)
def place(request, tmp_path):
    """The address of no index yet, in Lite and on a real server."""
    if request.param == "lite":
        yield f"milvus-lite:{tmp_path / 'index.db'}"
        return
    with request.getfixturevalue("server").collection() as address:
        yield address
