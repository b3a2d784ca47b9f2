"""Pages that are not in memory are called for at once; those that are cost next to nothing."""

import numpy as np
import pytest

pytest.importorskip("numba")

from mvindex.kernels.llvm import call_for_documents

ROWS, DIM = 4096, 1024


@pytest.fixture
def matrix(tmp_path):
    """Views in a file of holes, none of which anybody has read."""
    (tmp_path / "views").touch()
    with open(tmp_path / "views", "r+b") as file:
        file.truncate(ROWS * DIM * 2)
    return np.memmap(tmp_path / "views", np.int16, "r", shape=(ROWS, DIM))


def test_what_was_never_read_is_called_for_and_what_was_read_is_not(matrix):
    begins = np.arange(0, ROWS, 64)
    assert call_for_documents(matrix, begins, begins + 8)
    assert all(matrix[begin : begin + 8].sum() == 0 for begin in begins)
    assert not call_for_documents(matrix, begins, begins + 8)


def test_no_documents_call_for_nothing(matrix):
    nothing = np.empty(0, dtype=np.int64)
    assert not call_for_documents(matrix, nothing, nothing)


def test_the_first_and_the_last_row_of_the_file_may_be_asked_for(matrix):
    begins, ends = np.array([0, ROWS - 1]), np.array([1, ROWS])
    assert call_for_documents(matrix, begins, ends)
    assert matrix[0].sum() == matrix[-1].sum() == 0
