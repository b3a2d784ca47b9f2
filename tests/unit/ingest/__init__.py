"""Tests of mvindex.ingest."""
