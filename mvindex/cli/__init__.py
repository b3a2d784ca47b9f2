"""The command line: parse options, call the library, print. Data on stdout, everything else on stderr."""

from typing import TYPE_CHECKING, Any

from mvindex.cli.program import full_app, main

if TYPE_CHECKING:
    from typer import Typer

    app: Typer

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    """Return the program with all its commands, as `app`; a call of main() imports the one that it runs."""
    if name == "app":
        return full_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
