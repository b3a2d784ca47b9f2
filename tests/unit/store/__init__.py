"""Tests of mvindex.store."""
