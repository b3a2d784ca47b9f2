"""Run the program mvindex as `python -m mvindex`, where the script is not on the path."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_INTERRUPTED = 130


def _interrupt_again(found: UnraisableHookArgs) -> None:
    """Repeat a Ctrl-C that came where Python can raise nothing, as while it frees an object, and would be forgotten."""
    if found.exc_type is KeyboardInterrupt:
        # In a moment: in here it would be forgotten as well.
        main_thread = threading.main_thread().ident
        threading.Timer(0.01, signal.pthread_kill, (main_thread, signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(found)


def main() -> None:
    """Run the program; a Ctrl-C while it still imports ends it with the same exit code as later."""
    sys.unraisablehook = _interrupt_again
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
