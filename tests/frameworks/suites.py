"""Suites of frameworks, whole or cut to the tests that decide."""

import os

IS_LONG = os.environ.get("MVINDEX_LONG") == "1"
CUT = "NOT RUN: long; MVINDEX_LONG=1 runs every test of the suite in Milvus and behind a server too"


def cut(suite, *names):
    """The suite; with these of its tests only, unless MVINDEX_LONG=1.

    In a directory a suite always runs whole. What the rest could find elsewhere are differences between kinds of
    indexes, which the index's own contract looks for (mvindex.testing), and mistakes in the calls that frameworks' work
    makes of them: each method of blocking.Blocking and awaiting.Awaiting is called by one of the tests that stay.
    """
    missing = set(names) - set(dir(suite))
    if missing:
        raise LookupError(f"{suite.__name__} has no {sorted(missing)}")
    others = [name for name in dir(suite) if name.startswith("test") and name not in names]
    return suite if IS_LONG else type(suite.__name__, (suite,), dict.fromkeys(others))
