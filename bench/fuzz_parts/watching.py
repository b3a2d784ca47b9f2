"""One process's run of a target: every input timed, its memory measured, its faults kept."""

import json
import mmap
import os
import re
import resource
import signal
import time
import traceback
from collections import Counter
from pathlib import Path

from fuzz_parts.target import WrongAnswer

JOURNAL_BYTES = 1 << 17
_HEADER_BYTES = 16
_ROOM_BYTES = 4 << 30
# Peaks that differ by less are not told apart: putting the peak back to what is resident takes a walk of all pages.
_SLACK_KIB = 16 << 10
_KEPT_PER_FAULT = 3
_PEAK, _RESIDENT, _SIZE = (re.compile(rb"Vm%s:\s*(\d+)" % name) for name in (b"HWM", b"RSS", b"Size"))


class Hang(BaseException):
    """The input took longer than the target allows. No Exception, so that nothing takes it for an error of its own."""


class Journal:
    """The input that a process is at, in a file that outlives it; and how many it has begun."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(JOURNAL_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), JOURNAL_BYTES)

    def begin(self, number: int, data: bytes) -> None:
        size = min(len(data), JOURNAL_BYTES - _HEADER_BYTES)
        self._map[:_HEADER_BYTES] = number.to_bytes(8, "little") + size.to_bytes(8, "little")
        self._map[_HEADER_BYTES : _HEADER_BYTES + size] = data[:size]

    def read(self) -> tuple[int, bytes]:
        """Return how many inputs were begun, and the last of them."""
        size = int.from_bytes(self._map[8:_HEADER_BYTES], "little")
        return int.from_bytes(self._map[:8], "little"), self._map[_HEADER_BYTES : _HEADER_BYTES + size]


class Watch:
    """Runs a target on inputs and keeps its figures; faults and their inputs go to a folder."""

    def __init__(self, target, folder: Path, journal: Journal, report: Path | None = None) -> None:
        self.target = target
        self.counts: Counter[str] = Counter()
        self.faults: dict[str, dict] = {}
        self.slowest_s, self.peak_kib = 0.0, 0
        self._folder, self._journal, self._report = folder, journal, report
        self._memory = _Memory()
        folder.mkdir(parents=True, exist_ok=True)
        for number in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(number, _on_alarm)

    def run(self, data: bytes) -> str:
        """Run an input; return a key of how it ended, equal for inputs that ended alike."""
        self.counts["inputs"] += 1
        self._journal.begin(self.counts["inputs"], data)
        begin = time.process_time()
        try:
            _set_alarms(self.target.seconds)
            try:
                end = self._check(data)
            finally:
                _set_alarms(0)
        except Hang as err:
            end = self._fault("hang", err, data)
        self._keep_slowest(time.process_time() - begin, data)
        grown_kib = self._memory.grown_kib()
        self.peak_kib = max(self.peak_kib, grown_kib)
        if grown_kib << 10 > (self.target.extra_mib << 20) + self.target.bytes_per_byte * len(data):
            self._fault("memory", MemoryError(f"{grown_kib >> 10} MiB for {len(data)} bytes"), data)
        return end

    def _check(self, data: bytes) -> str:
        try:
            self.target.check(data)
        except self.target.refusals as err:
            self.counts["refused"] += 1
            return re.sub(r"[0-9]+|'[^']*'|\"[^\"]*\"", "", f"{type(err).__name__} {err}")[:200]
        except WrongAnswer as err:
            return self._fault("wrong", err, data)
        except (KeyboardInterrupt, SystemExit, Hang):
            raise
        except BaseException as err:  # noqa: BLE001 - PanicException of a Rust library is no Exception
            return self._fault("crash", err, data)
        self.counts["accepted"] += 1
        return "accepted"

    def _fault(self, kind: str, err: BaseException, data: bytes) -> str:
        self.counts[kind] += 1
        place = _place(err)
        key = f"{kind}: {type(err).__name__} at {place}"
        fault = self.faults.setdefault(key, {"kind": kind, "what": f"{err}"[:500], "place": place, "count": 0})
        fault["count"] += 1
        if fault["count"] <= _KEPT_PER_FAULT:
            fault.setdefault("files", []).append(save_input(self._folder, self.target.name, kind, data))
            fault.setdefault("trace", "".join(traceback.format_exception(err))[-4000:])
            self.save_report()
        return key

    def _keep_slowest(self, seconds: float, data: bytes) -> None:
        if seconds > self.slowest_s:
            self.slowest_s = seconds
            (self._folder / f"{self.target.name}.slowest").write_bytes(data)

    def report(self) -> dict:
        return {
            "counts": dict(self.counts),
            "faults": self.faults,
            "slowest_ms": round(self.slowest_s * 1000, 1),
            "peak_mib": round(self.peak_kib / 1024, 1),
        }

    def save_report(self) -> None:
        """Write the figures so far to the report, in case the process dies."""
        if self._report:
            self._report.write_text(json.dumps(self.report()), encoding="utf-8")


def save_input(folder: Path, name: str, kind: str, data: bytes) -> str:
    """Save the input and return its path."""
    number = 1
    while (path := folder / f"{name}.{kind}-{number}").exists():
        number += 1
    path.write_bytes(data)
    return str(path)


def limit_memory() -> None:
    """Limit the address space, so that a huge allocation is a MemoryError and not the machine's end."""
    size = _Memory().status(_SIZE) << 10
    resource.setrlimit(resource.RLIMIT_AS, (size + _ROOM_BYTES, size + _ROOM_BYTES))


class _Memory:
    """The rise and fall of this process's resident memory."""

    def __init__(self) -> None:
        self._file = os.open("/proc/self/status", os.O_RDONLY)
        self._peak_kib = self._resident_kib = 0
        self.grown_kib()

    def status(self, pattern: re.Pattern[bytes]) -> int:
        found = pattern.search(os.pread(self._file, 4096, 0))
        return int(found[1]) if found else 0

    def grown_kib(self) -> int:
        """Return how far the peak since the last call is above what was resident then; 0 when it rose too little."""
        status = os.pread(self._file, 4096, 0)
        peak, resident = (int(found[1]) if (found := p.search(status)) else 0 for p in (_PEAK, _RESIDENT))
        grown = peak - self._resident_kib if peak > self._peak_kib else 0
        if peak - resident > _SLACK_KIB:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            peak = resident
        self._peak_kib, self._resident_kib = peak, resident
        return grown


def _set_alarms(seconds: float) -> None:
    """Raise Hang after so much processor time, or ten times as much on the clock of a busy machine; 0 stops that."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


def _on_alarm(number: int, frame: object) -> None:
    raise Hang("took too long")


def _place(err: BaseException) -> str:
    """Return where the product, or else the target, was when it raised the error."""
    frames = [frame for frame in traceback.extract_tb(err.__traceback__) if Path(frame.filename).name != "target.py"]
    ours = [frame for frame in frames if "/mvindex" in frame.filename or isinstance(err, WrongAnswer)] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
