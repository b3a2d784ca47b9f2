"""The command line: parse options, call the library, print. Data on stdout, everything else on stderr."""

from mvindex.cli.app import app, main

__all__ = ["app", "main"]
