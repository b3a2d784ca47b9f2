"""Tests of mvindex.lexical."""
