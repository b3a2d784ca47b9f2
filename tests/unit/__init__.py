"""Tests of the rooms of mvindex, in folders of the same names."""
