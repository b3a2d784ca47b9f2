"""Tests of mvindex.search.tuning."""
