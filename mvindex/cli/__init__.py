"""The command line: parses, calls, prints. Data on stdout, the rest on stderr."""

from mvindex.cli.app import app, main

__all__ = ["app", "main"]
