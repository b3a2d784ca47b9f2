"""Telemetry: Prometheus metrics, logs as JSON lines, traces. They hold no secret, query or document text."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from mvindex import __version__
from mvindex.ingest import IngestReport
from mvindex.records import SearchResult

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


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


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send all logs to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogFormatter())
    # The lines name neither thread nor process, so these need not be looked up at each call.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Faiss tells there of each variant for a processor that it was not installed with, as of a missing module.
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)


def trace_span(name: str) -> AbstractContextManager[Any]:
    """Return a span of this name if OpenTelemetry is installed, else a null context."""
    tracer = _tracer()
    return nullcontext() if tracer is None else tracer.start_as_current_span(name)


@cache
def _tracer() -> Any:
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    return trace.get_tracer("mvindex")
