"""The folders of helpers on the path; the suites' async tests run without a plug-in."""

import asyncio
import inspect
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "serving")]


def pytest_configure(config):
    config.addinivalue_line("markers", "asyncio: an async test of a framework's suite; run in an event loop of its own")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
