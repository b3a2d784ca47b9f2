"""An index larger than the memory there is opens and answers: the same as with memory to spare."""

import subprocess
import sys

import numpy as np
import pytest

import mvindex
from mvindex.engines import auto
from tests.helpers.memory_limits import group, in_group, peak_bytes, said, uncached, views_bytes, with_data_limit

pytest.importorskip("faiss")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NOT RUN: needs Linux")

DOCUMENTS, VIEWS, DIM = 24_576, 16, 128
# Python, NumPy and Faiss take some 40 MiB of it, codes 15 MiB, modules that are compiled first 8 MiB.
LIMIT_BYTES = 88 << 20
FULL_SIZE = DOCUMENTS * VIEWS * DIM * 2


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """An index of 96 MiB of views, with an engine, and what it says without a limit."""
    path = tmp_path_factory.mktemp("larger") / "x.mvx"
    rng = np.random.default_rng(5)
    with mvindex.create(path, dim=DIM) as index:
        for begin in range(0, DOCUMENTS, 1024):
            views = rng.standard_normal((1024, VIEWS, DIM), dtype=np.float32)
            documents = [mvindex.Document(f"d{begin + n}", f"text {begin + n}", f"title {n}") for n in range(1024)]
            index.add_views(documents, views)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(auto, "LEAST_SAMPLE", 64 * auto.POINTS)
            index.admin.build("ivf-pq", nlist=64)
    assert views_bytes(path) == FULL_SIZE
    return path, said(path, queries=2)


@pytest.mark.full
@pytest.mark.needs("memory groups")
def test_it_answers_the_same_where_its_views_do_not_fit_in_memory(large):
    path, wanted = large
    with group(LIMIT_BYTES) as made:
        uncached(path)
        found = said(path, in_group(made), queries=2)
        # Full to its last page, the cache of files included, and yet less than the views.
        assert LIMIT_BYTES - (1 << 20) <= peak_bytes(made) <= LIMIT_BYTES < FULL_SIZE
    assert {name: answer for name, answer in found.items() if answer != wanted[name]} == {}
    assert wanted["verify"] == [True, DOCUMENTS] and wanted["info"][:4] == [DOCUMENTS, DOCUMENTS * VIEWS, DIM, "ivf-pq"]
    assert all(exact for _, exact in wanted["exact"]) and not any(exact for _, exact in wanted["ivf-pq"])


@pytest.mark.full
@pytest.mark.needs("memory groups")
def test_a_limit_that_is_too_small_is_a_limit(large):
    path, _ = large
    with group(24 << 20) as made, pytest.raises(RuntimeError, match="exit status -9"):
        said(path, in_group(made))


USABLE = [sys.executable, "-c", "from mvindex.kernels.threads import memory_bytes; print(memory_bytes())"]


@pytest.mark.needs("memory groups")
def test_what_a_process_may_use_is_what_its_own_control_group_leaves_it():
    with group(200 << 20) as made:
        done = subprocess.run(USABLE, capture_output=True, text=True, check=True, preexec_fn=in_group(made))
    assert int(done.stdout) == 200 << 20


def test_what_a_process_may_use_is_what_ulimit_leaves_it():
    before = with_data_limit(1 << 30)
    done = subprocess.run(USABLE, capture_output=True, text=True, check=True, preexec_fn=before)
    assert int(done.stdout) == 1 << 30
