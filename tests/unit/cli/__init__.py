"""Tests of mvindex.cli."""
