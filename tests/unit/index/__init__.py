"""Tests of mvindex.index."""
