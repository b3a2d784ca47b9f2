"""Imports that need other libraries, each found through the entry point group mvindex.imports."""
