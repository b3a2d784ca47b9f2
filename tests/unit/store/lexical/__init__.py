"""Tests of mvindex.store.lexical."""
