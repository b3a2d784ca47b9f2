"""Tests of mvindex.maintenance."""
