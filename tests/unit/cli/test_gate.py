"""The gate of mvindex eval: which runs are worse than a baseline; and messages of searches that name flags."""

import pytest

from mvindex.cli.eval import Verdict, is_worse
from mvindex.cli.options import in_flags
from mvindex.measure.compare import Comparison, RunReport


@pytest.mark.parametrize(
    "difference, p, p_corrected, expected",
    [(-0.1, 0.01, 0.049, True), (-0.1, 0.01, 0.05, False), (0.1, 0.0, 0.0, False), (0.0, 0.0, 0.0, False)],
)
def test_a_run_is_worse_where_it_is_lower_and_that_is_hardly_chance(difference, p, p_corrected, expected):
    pair = Comparison(
        first="main",
        second="this",
        measure="R@1",
        difference=difference,
        error=0.01,
        p=p,
        p_corrected=p_corrected,
        better=1,
        equal=2,
        worse=3,
    )
    assert is_worse(pair) == expected
    assert Verdict([], RunReport(questions=6, runs=(), comparisons=(pair,))).passed == (not expected)


@pytest.mark.parametrize(
    "message, shown",
    [
        (
            "cursor= does not go with rerank=, which orders again",
            "--cursor does not go with --rerank, which orders again",
        ),
        ("give offset= and rerank_depth=", "give --offset and --rerank-depth"),
        ("top_k: expected a whole number from 1 to 9, got 0", "--top-k: expected a whole number from 1 to 9, got 0"),
        ("cursor: 3 were shown; go on with offset=3", "--cursor: 3 were shown; go on with --offset 3"),
        ("give exact=True, or mode='lexical'", "give --exact, or --mode lexical"),
        ("a.mvx: min_confidence: expected 1", "a.mvx: --min-confidence: expected 1"),
        ("--filter: expected JSON, got 'like=3'", "--filter: expected JSON, got 'like=3'"),
        ("fields= and my_offset= stay, and text: too", "fields= and my_offset= stay, and text: too"),
    ],
)
def test_messages_name_flags(message, shown):
    assert in_flags(message) == shown
