"""Tests of mvindex.planning."""
