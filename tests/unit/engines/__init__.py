"""Tests of mvindex.engines."""
