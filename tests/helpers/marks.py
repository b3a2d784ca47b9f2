"""Marks of single cases of a parametrised test."""

import pytest


def full(*values):
    """Return a case for the full run only."""
    return pytest.param(*values, marks=pytest.mark.full)


def long(*values):
    """Return a case for the long run only."""
    return pytest.param(*values, marks=pytest.mark.long)
