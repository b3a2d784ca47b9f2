"""The list of tests that were NOT RUN has one line for each cause, with a count and a remedy."""

from tests.conftest import not_run_lines

NEEDS = "Skipped: NOT RUN: need a Milvus server: install it"


def test_tests_are_grouped_by_cause_and_the_most_frequent_comes_first():
    skipped = [
        ("tests/unit/test_a.py::test_x", "Skipped: NOT RUN: are too long for the default: make test FULL=1"),
        ("tests/milvus/test_b.py::test_x", NEEDS),
        ("tests/serving/test_c.py::test_y[1]", NEEDS),
    ]
    assert not_run_lines(skipped) == [
        "NOT RUN: 2 tests need a Milvus server (tests/milvus, tests/serving): install it",
        "NOT RUN: 1 test is too long for the default (tests/unit): make test FULL=1",
    ]


def test_reasons_that_tests_give_themselves_are_lines_of_the_same_form():
    skipped = [("tests/unit/test_a.py::test_x", "NOT RUN: needs numba (the extra fast)")]
    assert not_run_lines(skipped) == ["NOT RUN: 1 test needs numba (tests/unit): install the extra fast"]


def test_other_skipped_tests_are_not_listed():
    assert not_run_lines([("tests/unit/test_a.py::test_x", "Skipped: the engine deletes nothing")]) == []
