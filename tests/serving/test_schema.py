"""The schema: generated code matches it, every field is documented, recorded messages are understood."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from mvindex import errors
from mvindex.v1 import documents_pb2, jobs_pb2, search_pb2, service_pb2
from mvindex_connectors.remote.status import CODES, HTTP_STATUS, error_from_code, grpc_code

ROOT = Path(__file__).parents[2]
SCHEMAS = sorted((ROOT / "schemas" / "mvindex" / "v1").glob("*.proto"))
MESSAGES = Path(__file__).parent / "messages"
FILES = [documents_pb2, jobs_pb2, search_pb2, service_pb2]


def test_the_generated_code_matches_the_schema(tmp_path):
    pytest.importorskip("grpc_tools")
    made = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi")]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", "-Ischemas"]
    names = [str(path.relative_to(ROOT)) for path in SCHEMAS]
    for command in ([*protoc, *made, *names], [*protoc, f"--grpc_python_out={tmp_path}", names[-1]]):
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    fresh = {path.name: path.read_text() for path in (tmp_path / "mvindex" / "v1").iterdir()}
    assert names[-1].endswith("service.proto") and len(fresh) == 9
    for name, text in fresh.items():
        assert (ROOT / "mvindex" / "v1" / name).read_text() == text, f"{name}: run `make proto`"


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_every_field_message_method_and_value_is_documented(path):
    lines = [line.strip() for line in path.read_text().splitlines()]
    declared = re.compile(
        r"(message|enum|service|oneof|rpc) |(optional |repeated )?[\w.]+ \w+ = \d+;|[A-Z_0-9]+ = \d+;"
    )
    found = [number for number, line in enumerate(lines) if declared.match(line)]
    assert len(found) > 10
    bare = [lines[number] for number in found if not lines[number - 1].startswith("//")]
    assert bare == []


def numbers():
    """Return the number, type and label of every field, and every method."""
    kinds = {value: name for name, value in vars(FieldDescriptor).items() if name.startswith("TYPE_")}
    rows = {}
    for file in FILES:
        for message in file.DESCRIPTOR.message_types_by_name.values():
            for field in message.fields:
                label = "repeated " if field.is_repeated else ""
                rows[f"{message.name}.{field.name}"] = f"{field.number} {label}{kinds[field.type]}"
        for enum in file.DESCRIPTOR.enum_types_by_name.values():
            rows |= {f"{enum.name}.{value.name}": str(value.number) for value in enum.values}
    for method in service_pb2.DESCRIPTOR.services_by_name["MvindexService"].methods:
        streams = (method.client_streaming, method.server_streaming)
        rows[f"rpc {method.name}"] = f"{method.input_type.name} {method.output_type.name} {streams}"
    return rows


def test_recorded_fields_and_methods_are_unchanged():
    released = json.loads((MESSAGES / "schema-1.json").read_text())
    now = numbers()
    changed = {name: (was, now.get(name)) for name, was in released.items() if now.get(name) != was}
    assert changed == {}, "fields and methods of v1 are only ever added; see schemas/mvindex/v1/service.proto"


@pytest.mark.parametrize("path", sorted(MESSAGES.glob("*.bin")), ids=lambda path: path.stem)
def test_recorded_messages_have_the_same_meaning(path):
    kind = path.stem.split("-")[0]
    of = {name: file for file in FILES for name in file.DESCRIPTOR.message_types_by_name}
    message = getattr(of[kind], kind).FromString(path.read_bytes())
    meant = json.loads(path.with_suffix(".json").read_text())
    assert json_format.MessageToDict(message, preserving_proto_field_name=True) == meant


def test_unknown_fields_of_a_newer_client_are_ignored():
    """Field 1000, a string, is unknown here."""
    known = search_pb2.SearchRequest(index="a", top_k=3).SerializeToString()
    newer = known + b"\xc2\x3e\x03new"
    message = search_pb2.SearchRequest.FromString(newer)
    assert (message.index, message.top_k) == ("a", 3)


def every_error():
    found, left = [], [errors.MvindexError]
    while left:
        kind = left.pop()
        found.append(kind)
        left += kind.__subclasses__()
    return [kind for kind in found if kind.__module__ == "mvindex.errors"]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_each_error_has_a_code_and_is_raised_as_the_same_class(kind):
    code = grpc_code(kind("it is so"))
    assert code is CODES[kind]
    back = error_from_code(code, "it is so", [("mvindex-error", kind.__name__)])
    assert type(back) is kind and str(back) == "it is so"


def test_an_unknown_class_is_sent_as_its_nearest_base():
    class Odd(errors.QueryError):
        pass

    assert grpc_code(Odd("x")) is CODES[errors.QueryError]


def test_without_a_known_class_the_code_decides():
    from grpc import StatusCode

    assert type(error_from_code(StatusCode.UNAVAILABLE, "x", None)) is errors.ServerUnavailable
    assert (
        type(error_from_code(StatusCode.RESOURCE_EXHAUSTED, "x", [("mvindex-error", "SystemExit")]))
        is errors.LimitExceeded
    )
    assert type(error_from_code(StatusCode.CANCELLED, "x", ())) is errors.RemoteError


def test_only_codes_of_the_servers_own_faults_are_http_500():
    assert {code.name for code in CODES.values() if code not in HTTP_STATUS} == {"INTERNAL", "UNKNOWN", "DATA_LOSS"}
