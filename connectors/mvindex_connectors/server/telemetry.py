"""Telemetry: Prometheus metrics, logs as JSON lines, traces. They hold no secret, query or document text."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from queue import Full, Queue
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from mvindex import __version__
from mvindex.ingest import IngestReport
from mvindex.records import SearchResult

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# Lines of the log are written together after so long; beyond so many that wait, more are left out, and counted.
_LOG_S, _MAX_LOG_LINES = 0.05, 10_000
# How long the end of the process waits for whoever reads the log.
_LAST_LOG_S = 2.0
_NOT_READ = "nobody read the log"


class Metrics:
    """The server's metrics, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._of_results: dict[str, tuple[Counter, Counter, Counter, Histogram]] = {}
        made: dict[str, Any] = {"registry": self.registry}
        Gauge("mvindex_build_info", "The version.", ["version"], **made).labels(__version__).set(1)
        self.calls = Counter("mvindex_requests", "Calls that ended, by code.", ["method", "index", "code"], **made)
        self.seconds = Histogram(
            "mvindex_request_seconds", "Seconds from a call's arrival to its end.", ["method"], buckets=_SECONDS, **made
        )
        self.in_flight = Gauge("mvindex_requests_in_flight", "Calls in progress.", **made)
        self.stages = Histogram(
            "mvindex_stage_seconds",
            "Per batch of queries: encode, search (without rescoring) and rescore; per query: queue.",
            ["index", "stage"],
            buckets=_SECONDS,
            **made,
        )
        self.batches = Histogram(
            "mvindex_batch_queries", "Queries that were searched together.", ["index"], buckets=_SIZES, **made
        )
        self.queries = Counter("mvindex_queries", "Queries answered.", ["index"], **made)
        self.exact = Counter("mvindex_exact_results", "Results that are provably exact.", ["index"], **made)
        self.short = Counter("mvindex_short_results", "Results with fewer documents than requested.", ["index"], **made)
        self.rounds = Histogram(
            "mvindex_fetch_rounds", "Rounds of engine searches per query.", ["index"], buckets=_SIZES[:6], **made
        )
        self.written = Counter("mvindex_documents_written", "Documents written, by outcome.", ["index", "how"], **made)
        self.queue = Gauge("mvindex_queued_queries", "Queries waiting to be searched.", ["index"], **made)
        self.documents = Gauge("mvindex_index_documents", "Documents in the index.", ["index"], **made)
        self.views = Gauge("mvindex_index_views", "Views in the index.", ["index"], **made)
        self.size = Gauge("mvindex_index_bytes", "Bytes of the index on disk.", ["index"], **made)
        self.snapshot_time = Gauge(
            "mvindex_snapshot_timestamp_seconds",
            "When the last snapshot was complete, or the one that is served was taken, since 1970.",
            ["index"],
            **made,
        )
        self.follow_failures = Counter(
            "mvindex_follow_failures", "Snapshots that could not be followed.", ["index"], **made
        )

    def forget(self, index: str) -> None:
        """Remove what is measured of an index now and again; what was counted stays."""
        for gauge in (self.queue, self.documents, self.views, self.size, self.snapshot_time):
            gauge.remove_by_labels({"index": index})

    def batch_metrics(self, index: str) -> BatchMetrics:
        """Return the observer of the batches of an index."""
        return BatchMetrics(self, index)

    def count_results(self, index: str, results: Sequence[SearchResult]) -> None:
        """Count the results of a search."""
        queries, exact, short, rounds = self._result_metrics(index)
        queries.inc(len(results))
        exact.inc(sum(result.exact for result in results))
        short.inc(sum(result.short_by > 0 for result in results))
        for result in results:
            rounds.observe(result.rounds)

    def _result_metrics(self, index: str) -> tuple[Counter, Counter, Counter, Histogram]:
        """Return the metrics of results of an index; to look them up takes longer than to count."""
        if index not in self._of_results:
            counters = self.queries.labels(index), self.exact.labels(index), self.short.labels(index)
            self._of_results[index] = (*counters, self.rounds.labels(index))
        return self._of_results[index]

    def count_written(self, index: str, report: IngestReport) -> None:
        """Count the documents of an ingest by outcome."""
        for outcome in ("added", "replaced", "updated", "unchanged"):
            self.written.labels(index, outcome).inc(getattr(report, outcome))

    def render(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self.registry)


class BatchMetrics:
    """The metrics of the batches of one index."""

    def __init__(self, metrics: Metrics, index: str) -> None:
        self._batches = metrics.batches.labels(index)
        self._stage = cache(partial(metrics.stages.labels, index))

    def observe_batch(self, size: int, waited_s: Sequence[float], stages: dict[str, float]) -> None:
        """Count a batch."""
        self._batches.observe(size)
        for name, seconds in stages.items():
            self._stage(name).observe(seconds)
        for seconds in waited_s:
            self._stage("queue").observe(seconds)


class JsonLogFormatter(logging.Formatter):
    """Formats each log record as one line of JSON; the record's `fields` become members beside its message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        made = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        row = {"time": made, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        row |= getattr(record, "fields", {})
        if record.exc_info:
            row["traceback"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=True, default=str)


class BackgroundHandler(logging.Handler):
    """Writes lines in a thread, several at once, so that no call waits for whoever reads the log, or does not read."""

    def __init__(self, descriptor: int) -> None:
        """descriptor: of an open file."""
        super().__init__()
        self._descriptor = descriptor
        self._lines: Queue[str] = Queue(_MAX_LOG_LINES)
        self._is_urgent = threading.Event()
        self._lock, self._num_left_out, self._reason = threading.Lock(), 0, _NOT_READ
        # The rest of a line whose beginning was written.
        self._begun = b""
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take the line of a record, to be written in a moment; not the record, whose error would keep its request."""
        try:
            self._lines.put_nowait(self._line(record))
        except Full:
            with self._lock:
                self._num_left_out += 1
            return
        if record.levelno >= logging.WARNING:
            self._is_urgent.set()

    def flush(self) -> None:
        """Wait until everything is written, or nobody seems to read it."""
        self._is_urgent.set()
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, _LAST_LOG_S)

    def _run(self) -> None:
        while True:
            lines = [self._lines.get()]
            self._is_urgent.wait(_LOG_S)
            self._is_urgent.clear()
            lines += [self._lines.get() for _ in range(self._lines.qsize())]
            self._write(lines)
            for _ in lines:
                self._lines.task_done()

    def _write(self, lines: list[str]) -> None:
        with self._lock:
            left_out, self._num_left_out = self._num_left_out, 0
        if left_out:
            text = f"{left_out} lines were left out: {self._reason}"
            lines = [*lines, self._line(logging.LogRecord(__name__, logging.WARNING, "", 0, text, None, None))]
        begun, self._begun, self._reason = self._begun, b"", _NOT_READ
        data, written = begun + "".join(lines).encode(), 0
        try:
            # Past sys.stderr, whose lock a write that waits would hold at the end of the process.
            while written < len(data):
                written += os.write(self._descriptor, memoryview(data)[written:])
        except OSError as err:
            # Told of once it can be written again, after the rest of the line that ends here.
            is_within = not data[:written].endswith(b"\n") if written else bool(begun)
            end = data.index(b"\n", written) + 1 if is_within else written
            self._begun, self._reason = data[written:end], f"the log could not be written: {err.strerror}"
            num_lost = data.count(b"\n", end)
            if left_out and num_lost:
                # The last of them would have told of earlier ones.
                num_lost += left_out - 1
            with self._lock:
                self._num_left_out += num_lost

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record) + "\n"
        except Exception as err:  # noqa: BLE001 - as logging does: a line that cannot be made ends no call
            row = {"level": "error", "logger": record.name, "message": f"a line was not made: {err}"}
            return json.dumps(row) + "\n"


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send all logs to stderr as JSON lines."""
    handler = BackgroundHandler(sys.stderr.fileno())
    handler.setFormatter(JsonLogFormatter())
    # The lines name neither thread nor process, so these need not be looked up at each call.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Faiss tells there of each variant for a processor that it was not installed with, as of a missing module.
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)


def trace_span(name: str) -> AbstractContextManager[Any]:
    """Return a span of this name if OpenTelemetry is installed and configured, else a null context."""
    api = _trace_api()
    # Spans that go nowhere would take a thirtieth of a server's time.
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return nullcontext()
    span: AbstractContextManager[Any] = api.get_tracer("mvindex").start_as_current_span(name)
    return span


@cache
def _trace_api() -> Any:
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    return trace
