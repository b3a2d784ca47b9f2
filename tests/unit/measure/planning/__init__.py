"""Tests of mvindex.measure.planning."""
