"""The folders of helpers on the path; the suites' async tests run without a plug-in."""

import asyncio
import inspect
import sys
from pathlib import Path

import pytest

import mvindex

sys.path[:0] = [str(Path(__file__).parent), *(str(Path(__file__).parents[1] / name) for name in ("serving", "milvus"))]


def pytest_configure(config):
    config.addinivalue_line("markers", "asyncio: an async test of a framework's suite; run in an event loop of its own")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def packaged():
    """The packaged encoder, loaded once."""
    return mvindex.load_encoder("minilm")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("lite", marks=pytest.mark.needs("milvus-lite")),
        pytest.param("server", marks=[pytest.mark.needs("milvus-server"), pytest.mark.long]),
    ],
)
def milvus(request, tmp_path_factory):
    """The address of no index yet, in Milvus Lite and on a real server."""
    folder = tmp_path_factory.mktemp("milvus")
    if request.param == "lite":
        yield f"milvus-lite:{folder / 'a.db'}"
        return
    from milvus_server import QUICK, MilvusServer

    with MilvusServer(folder, QUICK) as running, running.collection() as address:
        yield address


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of empty indexes: dim2, dim6, dim10 and dim768, without words; and words, of 10 dims, with them."""
    from serving_tools import served

    folder = tmp_path_factory.mktemp("served")
    for dim in (2, 6, 10, 768):
        mvindex.create(folder / f"dim{dim}.mvx", dim=dim).close()
    mvindex.create(folder / "words.mvx", dim=10, lexical="english").close()
    with served(*(f"--index={path.stem}={path}" for path in sorted(folder.iterdir()))) as serving:
        yield serving
