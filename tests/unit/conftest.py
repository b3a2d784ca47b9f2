"""Fixtures of unit tests."""

import importlib.util

import pytest

pytest.register_assert_rewrite("tests.helpers.scan_cases", "tests.helpers.aggregate_cases")


@pytest.fixture(scope="module")
def one_torch_thread():
    """Blocks of a few hundred views are not worth the wait for another thread; tests/contract has torch's own."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plain_arithmetic(monkeypatch):
    """Documents in fp32 and one torch thread, see tiny_models."""
    from tests.helpers import tiny_models

    with tiny_models.plain_arithmetic(monkeypatch):
        yield


@pytest.fixture
def preserve_random_state():
    """The random numbers that a test draws leave other tests' alone."""
    from mvindex_train.seeding import preserve_random_state

    with preserve_random_state():
        yield


@pytest.fixture
def index(tmp_path):
    """An index of given vectors, ten documents of two views, at tmp_path / "x.mvx"."""
    import mvindex
    from tests.helpers.index_examples import documents, vectors

    with mvindex.create(tmp_path / "x.mvx", dim=4) as index:
        index.add_views(documents(10), vectors(10))
        yield index
