"""HTTP fuzzed by schemathesis from its own OpenAPI description: the description holds, and no request is an error 500.

FUZZ_EXAMPLES=1000 tries more examples, different ones in each run; docs/how-to/serving.md has the
command for any server.
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


def test_the_description_holds_for_every_request(serving, tmp_path):
    how = ["--max-examples", EXAMPLES] if EXAMPLES else ["--max-examples", "4", "--generation-deterministic"]
    status, output = fuzzed(serving, tmp_path, *how, description=f"{serving.http}/openapi.json")
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
    with urllib.request.urlopen(f"{serving.http}/openapi.json") as answer:
        description = json.load(answer)
    description["components"]["schemas"]["IndexInfo"]["required"].append("colour")
    (tmp_path / "wrong.json").write_text(json.dumps(description))
    status, output = fuzzed(
        serving, tmp_path, "--phases", "coverage", "--include-operation-id", "info", description="wrong.json"
    )
    assert status == 1 and "colour" in output, output
