"""Logs and traces of a server, beyond those that the HTTP tests read from a running one."""

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys

import pytest
from serving_tools import vectors

import mvindex
from mvindex import Document
from mvindex.errors import QueryError
from mvindex_connectors.remote import IndexClient
from mvindex_connectors.server.telemetry import BackgroundHandler, JsonLogFormatter, trace_span

PIPE_BYTES = 4096


def test_a_log_line_is_json_whatever_the_message_holds():
    record = logging.LogRecord("mvindex", logging.INFO, "x", 1, 'a "quoted"\nline \udcff', (), None)
    record.fields = {"request_id": "r1", "ms": 1.5}
    line = JsonLogFormatter().format(record)
    row = json.loads(line)
    assert "\n" not in line and row["message"] == 'a "quoted"\nline \udcff'
    assert (row["request_id"], row["ms"], row["level"]) == ("r1", 1.5, "info")
    assert row["time"].endswith("Z") and len(row["time"]) == 24


@pytest.fixture
def pipe():
    """Return the descriptors of a pipe that holds some tens of lines."""
    ends = os.pipe()
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield ends
    for end in ends:
        os.close(end)


def logged(record_count, handler):
    for number in range(record_count):
        handler.emit(logging.LogRecord("mvindex", logging.INFO, "", 0, f"{number}", (), None))


def test_lines_are_written_in_order_and_in_whole(pipe):
    handler = BackgroundHandler(pipe[1])
    logged(100, handler)
    handler.flush()
    assert os.read(pipe[0], PIPE_BYTES).decode().split() == [str(number) for number in range(100)]


def test_lines_that_nobody_reads_hold_nobody_up_and_are_counted(pipe):
    handler = BackgroundHandler(pipe[1])
    logged(30_000, handler)
    numbers, left_out = [], 0
    with os.fdopen(os.dup(pipe[0]), encoding="utf-8") as file:
        while len(numbers) + left_out < 30_000:
            number, *rest = file.readline().split()
            if rest:
                left_out += int(number)
            else:
                numbers.append(int(number))
    assert numbers == sorted(set(numbers)) and len(numbers) >= 10_000 and left_out


LIMITED = """
import json, logging, os, resource, sys
from mvindex_connectors.server.telemetry import BackgroundHandler, JsonLogFormatter

def log(count, first):
    for number in range(first, first + count):
        handler.handle(logging.LogRecord("mvindex", logging.INFO, "", 0, f"{number}", (), None))
    handler.flush()

handler = BackgroundHandler(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND))
handler.setFormatter(JsonLogFormatter())
for part, limit in enumerate((1000, 1000, 1001, 3001, 100_000)):
    # The system refuses what goes beyond, in the middle of a line, as it does on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    log(20, 20 * part)
"""


def test_lines_that_the_disk_refuses_are_counted_and_none_is_cut(tmp_path):
    subprocess.run([sys.executable, "-c", LIMITED, tmp_path / "log"], check=True, timeout=60)
    rows = [json.loads(line) for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]
    told = [row["message"].split(" lines were left out: ") for row in rows if row["level"] == "warning"]
    numbers = [int(row["message"]) for row in rows if row["level"] == "info"]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 99
    assert len(numbers) + sum(int(count) for count, _ in told) == 100 and told
    assert {reason for _, reason in told} == {"the log could not be written: File too large"}


def test_a_record_that_cannot_be_formatted_is_told(pipe):
    handler = BackgroundHandler(pipe[1])
    handler.emit(logging.LogRecord("mvindex", logging.INFO, "", 0, "%d", ("x",), None))
    handler.flush()
    assert "a line was not made" in json.loads(os.read(pipe[0], PIPE_BYTES))["message"]


def test_a_server_whose_log_nobody_reads_answers_and_ends(pipe, tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=16) as index:
        index.add_views([Document("d", "text")], vectors(1)[:, None])
    command = [sys.executable, "-m", "mvindex", "serve", f"--index=a={tmp_path / 'a.mvx'}", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=pipe[1], text=True)
    try:
        address = json.loads(process.stdout.readline())["grpc"]
        with IndexClient(f"{address}/a") as client:
            # Their lines take ten times as much as the pipe holds.
            for query in vectors(200):
                assert client.search(query).hits[0].id == "d"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_calls_are_spans_if_opentelemetry_is_configured():
    trace = pytest.importorskip("opentelemetry.trace", reason="NOT RUN: needs opentelemetry-sdk")
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="NOT RUN: needs opentelemetry-sdk")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    with trace_span("Search"):
        pass
    with pytest.raises(QueryError), trace_span("Explain"):
        raise QueryError("no such document")
    spans = kept.get_finished_spans()
    assert [(span.name, span.status.is_ok) for span in spans] == [("Search", True), ("Explain", False)]
    assert spans[1].events[0].attributes["exception.message"] == "no such document"
