"""Tests of mvindex.kernels."""
