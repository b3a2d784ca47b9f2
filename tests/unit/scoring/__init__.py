"""Tests of mvindex.scoring."""
