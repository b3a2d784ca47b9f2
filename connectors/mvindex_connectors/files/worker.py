"""The worker process: reads files from stdin and writes what their parsers give, within the limits of each.

A request is a line of JSON and the bytes of the file. The answer is lines of JSON: ["part", value] for each part, then
["end", whether another file may follow], or ["error", why the file cannot be read, whether another may follow].
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import sys
import threading
from typing import Any, BinaryIO

from mvindex_connectors.files.parsers import PARSERS, Parser, RefusedError

# A process that has held so much gives it back by its end.
_LARGEST_IDLE_KIB = 512 * 2**10
_NICEST = 19
# An allocation that fails asks for a part of memory of up to this size, as a rule.
_SPARE_BYTES = 2**24


def main() -> None:
    """Serve requests until stdin ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb", buffering=2**16)
    os.dup2(2, 1)  # what a parser prints is no answer
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        data = sys.stdin.buffer.read(request["size_bytes"])
        may_go_on = _answer(request, data, answers)
        answers.flush()
        if not may_go_on:
            return


def _end_with_parent() -> None:
    """End the process when the other end of stdin is closed, also while a parser works."""
    poll = select.poll()
    poll.register(0, 0)  # only for POLLHUP, which is always reported
    poll.poll()
    os._exit(0)


def _answer(request: dict[str, Any], data: bytes, answers: BinaryIO) -> bool:
    """Write the answer; return whether another file may follow."""
    try:
        parser = _load(request["format"])
        _set_limits(request["cpu_s"], request["memory_bytes"])
        _give_way(request["niceness"])
        for part in parser.parse(data):
            _write(answers, "part", part)
    except RefusedError as err:
        _write(answers, "error", str(err), True)
        return True
    except BrokenPipeError:
        return False
    except Exception as err:  # noqa: BLE001 - parsers raise errors of many kinds on damaged files
        is_out_of_memory = isinstance(err, MemoryError) or _is_at_limit()
        reason = str(err).strip().splitlines()[:1] or [type(err).__name__]
        damaged = f"is damaged, or not of the kind that its name says: {reason[0]:.200}"
        too_large = f"needs more than {request['memory_bytes'] / 2**30:g} GiB of memory"
        _write(answers, "error", too_large if is_out_of_memory else damaged, not is_out_of_memory)
        return not is_out_of_memory
    is_small = _most_kib("VmHWM") < _LARGEST_IDLE_KIB
    _write(answers, "end", is_small)
    return is_small


def _load(form: str) -> Parser:
    """Return a parser whose package is imported, which the limits of the file before do not concern."""
    for kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS):
        _limit(kind, resource.getrlimit(kind)[1])
    parser = PARSERS[form]
    try:
        importlib.import_module(parser.module)
    except ImportError as err:
        raise RefusedError(f"its parser cannot be imported: {err}") from err
    return parser


def _set_limits(cpu_s: int, memory_bytes: int) -> None:
    """Allow so much CPU time and memory beyond what the process has used and holds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + cpu_s)
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:  # Linux only
        _limit(resource.RLIMIT_AS, int(file.read().split()[0]) * resource.getpagesize() + memory_bytes)


def _give_way(niceness: int) -> None:
    """Leave the processor to other processes first, unless that is so already; beyond 19 as soon as one wants it.

    A process that wakes up may wait a tick of the clock, 4 ms as a rule, for one of any niceness, but for none of this
    policy.
    """
    own = os.getpriority(os.PRIO_PROCESS, 0)
    if own < niceness:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    if niceness > _NICEST and hasattr(os, "SCHED_IDLE"):  # Linux only
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _is_at_limit() -> bool:
    """Return whether nearly all of the memory was used that is allowed, for which parsers raise errors of any kind."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return limit != resource.RLIM_INFINITY and _most_kib("VmPeak") * 2**10 + _SPARE_BYTES > limit


def _most_kib(field: str) -> int:
    """Return the most memory that the process has had, by a field of Linux's status; 0 on other systems.

    What getrusage() tells is also that of the process which started this one, which may be large.
    """
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{field}:"))
    return 0


def _limit(kind: int, limit: int) -> None:
    """Set a limit, or the hard one where that is lower."""
    _, most = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def _write(answers: BinaryIO, *values: Any) -> None:
    answers.write(json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
