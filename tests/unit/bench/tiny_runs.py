"""Run benches in their tiny form, one after the other in this process, and print a line of JSON for each.

    python -m tests.unit.bench.tiny_runs search.py drpq.py

In one process torch is imported once, and what benches share is made once. Not for benches that patch mvindex.
"""

import contextlib
import io
import json
import os
import runpy
import sys
import traceback
from pathlib import Path

BENCH = Path(__file__).parents[3] / "bench"


def run(name):
    """Return the output of the bench, and what it failed with: None, or the end of its traceback."""
    output, environment = io.StringIO(), dict(os.environ)
    sys.argv = [str(BENCH / name), "--tiny"]
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        failed = None if not end.code else f"exit {end.code}: {output.getvalue()[-2000:]}"
    except BaseException:  # noqa: BLE001 - told of, whatever it is; the other benches run all the same
        failed = traceback.format_exc()[-2000:]
    else:
        failed = None
    for variable in os.environ.keys() - environment.keys() - {"MVINDEX_BENCH_TINY"}:
        del os.environ[variable]
    return {"bench": name, "output": output.getvalue(), "failed": failed}


if __name__ == "__main__":
    sys.argv[1:], names = ["--tiny"], sys.argv[1:]
    sys.path.insert(0, str(BENCH))
    for bench in names:
        written = json.dumps(run(bench))
        print(written, flush=True)
