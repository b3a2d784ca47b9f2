"""The program mvindex, also as `python -m mvindex`, for where the script is not on the path."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the program; a Ctrl-C while it still loads ends it as a later one does."""
    try:
        from mvindex.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
