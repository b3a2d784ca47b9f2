"""Texts: sentences and snippets."""
