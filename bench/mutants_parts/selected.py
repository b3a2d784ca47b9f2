"""A plugin of pytest for bench/mutants.py: notes what each test covers and takes, or runs chosen tests in an order.

MVINDEX_MUTANTS names a folder. Under coverage the plugin writes there the CPU seconds of each test that passes, in
times.json; otherwise it runs the tests that selected.json lists, and keeps the running test's name in the file running.
"""

import json
import os
from pathlib import Path

import coverage
import pytest

import mvindex

_FOLDER = Path(os.environ["MVINDEX_MUTANTS"])
_seconds, _failed = {}, set()


def pytest_configure():
    assert Path(mvindex.__file__).is_relative_to(Path.cwd()), f"expected mvindex of this folder, got {mvindex.__file__}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    if coverage.Coverage.current() is None:
        wanted = json.loads((_FOLDER / "selected.json").read_text())
        here = {item.nodeid: item for item in items}
        items[:] = [here[name] for name in wanted if name in here]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    covered = coverage.Coverage.current()
    if covered is None:
        (_FOLDER / "running").write_text(item.nodeid)
        return (yield)
    covered.switch_context(item.nodeid)
    begin = os.times()
    result = yield
    _seconds[item.nodeid] = sum(os.times()[:4]) - sum(begin[:4])
    covered.switch_context("")
    return result


def pytest_runtest_logreport(report):
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish():
    if coverage.Coverage.current() is not None:
        passed = {name: seconds for name, seconds in _seconds.items() if name not in _failed}
        (_FOLDER / "times.json").write_text(json.dumps(passed))
