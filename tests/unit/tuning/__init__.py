"""Tests of mvindex.tuning."""
