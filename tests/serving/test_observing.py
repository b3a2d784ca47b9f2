"""What a server tells about itself, beside what the HTTP tests read from a running one."""

import json
import logging

import pytest

from mvindex.errors import QueryError
from mvindex_connectors.server.telemetry import JsonLines, traced


def test_a_log_line_is_json_whatever_the_message_holds():
    record = logging.LogRecord("mvindex", logging.INFO, "x", 1, 'a "quoted"\nline \udcff', (), None)
    record.fields = {"request_id": "r1", "ms": 1.5}
    line = JsonLines().format(record)
    row = json.loads(line)
    assert "\n" not in line and row["message"] == 'a "quoted"\nline \udcff'
    assert (row["request_id"], row["ms"], row["level"]) == ("r1", 1.5, "info")
    assert row["time"].endswith("Z") and len(row["time"]) == 24


def test_calls_are_spans_where_opentelemetry_is_set_up():
    trace = pytest.importorskip("opentelemetry.trace", reason="NOT RUN: needs opentelemetry-sdk")
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="NOT RUN: needs opentelemetry-sdk")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    with traced("Search"):
        pass
    with pytest.raises(QueryError), traced("Explain"):
        raise QueryError("no such document")
    spans = kept.get_finished_spans()
    assert [(span.name, span.status.is_ok) for span in spans] == [("Search", True), ("Explain", False)]
    assert spans[1].events[0].attributes["exception.message"] == "no such document"
