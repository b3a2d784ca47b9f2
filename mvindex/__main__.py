"""Run the program mvindex as `python -m mvindex`, where the script is not on the path."""

import gc
import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the program; a Ctrl-C while it still imports ends it with the same exit code as later."""
    try:
        from mvindex.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except ImportError as err:
        # What a compiled module makes of a Ctrl-C while it is imported, as onnxruntime does.
        if not isinstance(err.__cause__, KeyboardInterrupt):
            raise
        sys.exit(_INTERRUPTED)
    finally:
        # Nothing is left to collect: searching all objects once more would take a tenth of a second.
        gc.freeze()


if __name__ == "__main__":
    main()
