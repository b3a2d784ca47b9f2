"""Evaluation by the field's tools."""
