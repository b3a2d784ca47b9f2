"""Tests of mvindex.search."""
