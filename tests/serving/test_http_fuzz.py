"""HTTP fuzzed by schemathesis from its own OpenAPI description: the description holds, and no request is an error 500.

FUZZ_EXAMPLES=1000 tries more examples, different ones in each run, and every form of a filter at all operations;
docs/how-to/serving.md has the command for any server.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from serving_tools import fill, served

import mvindex

TOKEN = "admin-0123456789"
EXAMPLES = os.environ.get("FUZZ_EXAMPLES", "")
CONFIG = Path(__file__).parent / "schemathesis.toml"
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzzed")
    fill(folder / "a.mvx")
    with mvindex.open(folder / "a.mvx") as index:
        index.admin.enable_lexical("unicode")
    (folder / "tokens").write_text(f"admin {TOKEN}\n")
    arguments = ["--http", "0", "--token-file", folder / "tokens", "--max-queries", "64", "--max-top-k", "100"]
    with served(f"--index=a={folder / 'a.mvx'}", *arguments) as serving:
        yield serving


def fuzzed(serving, folder, *options, description):
    """Return the status and the output of a run of schemathesis."""
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
               "--config-file", CONFIG, "run", description, "--url", serving.http, "--no-color",
               "--header", f"Authorization: Bearer {TOKEN}", *options]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(CONFIG.parent), os.environ.get("PYTHONPATH", "")))}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=env, capture_output=True, text=True, timeout=3600, check=False
    )
    return done.returncode, done.stdout + done.stderr


def read_description(serving):
    with urllib.request.urlopen(f"{serving.http}/openapi.json") as answer:
        return json.load(answer)


def with_full_filters_of_searches_alone(description):
    """Return a description whose lists and deletions take any object as a filter: one of all forms has 2,000 cases."""
    lists = description["paths"]["/v1/indexes/{index}/documents"]["get"]["parameters"]
    (listed,) = [one["content"]["application/json"]["schema"] for one in lists if one["name"] == "filter"]
    for one in (listed, description["components"]["schemas"]["DeleteRequest"]["properties"]["filter"]):
        assert one.pop("$ref") == "#/components/schemas/Filter" and one["type"] == "object"
    return description


def test_the_description_holds_for_every_request(serving, tmp_path):
    if EXAMPLES:
        how, described = ["--max-examples", EXAMPLES], f"{serving.http}/openapi.json"
    else:
        how, described = ["--max-examples", "4", "--generation-deterministic"], "short.json"
        (tmp_path / described).write_text(json.dumps(with_full_filters_of_searches_alone(read_description(serving))))
    status, output = fuzzed(serving, tmp_path, *how, description=described)
    assert status == 0, output
    assert "Tested: 18" in output, output
    # Jobs have no documents to link to, and would take most of the steps.
    apart = [*how, "--phases", "stateful", "--exclude-path-regex", "^/v1/admin"]
    linked_status, linked = fuzzed(serving, tmp_path, *apart, description=f"{serving.http}/openapi.json")
    assert linked_status == 0 and re.search(r"API Links: +[4-8] covered", linked), linked
    assert int(re.search(r"(\d+) generated", output)[1]) > 350, output
    # Documents were stored, found, updated and deleted.
    done = {(row["method"], row["code"]) for row in serving.calls()}
    assert {
        (name, "OK") for name in ("Search", "Add", "Get", "List", "Update", "Delete", "Info", "Indexes", "Metrics")
    } <= done
    assert ("Search", "UNAUTHENTICATED") in done
    assert sum(row["method"] == "Search" and row["code"] == "OK" for row in serving.calls()) > 30
    assert not [row for row in serving.calls() if row["code"] in ("INTERNAL", "UNKNOWN", "DATA_LOSS")]


def test_a_wrong_description_is_detected(serving, tmp_path):
    """The fuzzer itself does check responses."""
    description = read_description(serving)
    description["components"]["schemas"]["IndexInfo"]["required"].append("colour")
    (tmp_path / "wrong.json").write_text(json.dumps(description))
    status, output = fuzzed(
        serving, tmp_path, "--phases", "coverage", "--include-operation-id", "info", description="wrong.json"
    )
    assert status == 1 and "colour" in output, output
