"""The commands on an index behind a server, and the files of examples/serving."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from serving_tools import fill, served

import mvindex as package
from tests.helpers.cli import lines, mvindex, ok, read_passages, write_tsv

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "serving"


@pytest.mark.full
@pytest.mark.needs("minilm")
def test_commands_work_remotely_as_locally(tmp_path, monkeypatch):
    local, remote = tmp_path / "local.mvx", tmp_path / "remote.mvx"
    with package.create(remote, encoder="minilm-views"):
        pass
    rows = read_passages(12, first=195)
    write_tsv(tmp_path / "corpus.tsv", [*rows, ["bad", "", ""]])
    with served(f"--index=r={remote}") as serving:
        monkeypatch.setenv("MVINDEX_TOKEN", "")
        url = serving.url("r")
        reports = [
            lines(mvindex("ingest", "corpus.tsv", "--on-error", "skip", "--index", index, "--json", cwd=tmp_path))[0]
            for index in (local, url)
        ]
        for report in reports:
            assert (report["added"], report["rejected"], report["documents"]) == (12, 1, 12)
        assert reports[1]["rejects_files"] == [str(tmp_path / "r.rejects.tsv")]
        again = lines(mvindex("ingest", "r.rejects.tsv", "--index", url, "--json", "--on-error", "skip", cwd=tmp_path))
        assert again[0]["added"] == 0
        question = "where did the black death originate?"
        for options in ([], ["--scoring", "drpq"], ["--exact", "-k", "3"], ["--explain"]):
            here, there = (
                lines(mvindex("query", question, "--index", index, "--json", *options, cwd=tmp_path))[0]
                for index in (local, url)
            )
            assert [hit["id"] for hit in here["hits"]] == [hit["id"] for hit in there["hits"]]
            assert here["hits"][0]["snippet"] == there["hits"][0]["snippet"]
            assert abs(here["hits"][0]["score"] - there["hits"][0]["score"]) < 1e-5
        (tmp_path / "q.jsonl").write_text(json.dumps({"id": "1", "question": question, "passage_id": "201"}) + "\n")
        evaluated = [
            lines(mvindex("eval", "--questions", "q.jsonl", "--index", index, "--json", cwd=tmp_path))[0]
            for index in (local, url)
        ]
        assert evaluated[0] == evaluated[1]
        assert lines(mvindex("get", "201", "--index", url, "--json", cwd=tmp_path)) == lines(
            mvindex("get", "201", "--index", local, "--json", cwd=tmp_path)
        )
        assert lines(mvindex("info", "--index", url, "--json", cwd=tmp_path))[0]["documents"] == 12
        assert lines(mvindex("delete", "201", "--index", url, "--json", cwd=tmp_path))[0] == {
            "deleted": 1, "documents": 11
        }  # fmt: skip
        other = mvindex("ingest", "corpus.tsv", "--views", "3", "--index", url, cwd=tmp_path)
        assert other.returncode == 1 and "views 8" in other.stderr
        for command in ("build", "compact"):
            done = mvindex(command, "--index", url, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        for command, told in ((["verify"], url), (["snapshot", "x"], "--admin-folder")):
            done = mvindex(*command, "--index", url, cwd=tmp_path)
            assert done.returncode == 1 and told in done.stderr and "Traceback" not in done.stderr, done.stderr
        refused = mvindex("delete", "202", "--index", remote, cwd=tmp_path)
        assert refused.returncode == 1 and f"--index {url}" in refused.stderr


@pytest.mark.full
@pytest.mark.needs("minilm")
def test_lexical_queries_work_remotely_as_locally(tmp_path):
    path = tmp_path / "words.mvx"
    write_tsv(tmp_path / "corpus.tsv", read_passages(12, first=195))
    ok(mvindex("ingest", "corpus.tsv", "--lexical", "english", "--index", path, cwd=tmp_path))
    question = "where did the black death originate?"
    asked = [["--hybrid"], ["--mode", "lexical"], ["--hybrid", "--fusion", "rrf", "--weights", "1,2", "--explain"]]
    asked = [["query", question, "--json", *options] for options in asked]
    (tmp_path / "q.jsonl").write_text(json.dumps({"id": "1", "question": question, "passage_id": "201"}) + "\n")
    asked.append(["eval", "--questions", "q.jsonl", "--hybrid", "--json"])
    local = [lines(mvindex(*each, "--index", path, cwd=tmp_path)) for each in asked]
    with served(f"--index=w={path}") as serving:
        remote = [lines(mvindex(*each, "--index", serving.url("w"), cwd=tmp_path)) for each in asked]
        assert lines(mvindex("info", "--index", serving.url("w"), "--json", cwd=tmp_path))[0]["lexical"] == "english"
    assert remote == local
    assert [part["name"] for part in local[0][0]["hits"][0]["components"]] == ["dense", "lexical"]


def test_an_unreachable_server_is_one_line(tmp_path):
    done = mvindex("info", "--index", "grpc://127.0.0.1:1/a", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith(
        "mvindex: grpc://127.0.0.1:1/a: the server cannot be reached"
    )
    assert done.stderr.count("\n") == 1


def test_serve_has_help_and_an_example_and_wrong_usage_is_2(tmp_path):
    done = ok(mvindex("serve", "--help", cwd=tmp_path))
    assert "\n  mvindex serve" in done.stdout
    assert mvindex("serve", cwd=tmp_path).returncode == 2
    # A server that begins has logging of its own, so it takes a process.
    for arguments, env in ((["a=nope.mvx"], os.environ), (["a=x", "--tls-cert", "c.pem"], None)):
        done = mvindex("serve", "--index", *arguments, cwd=tmp_path, env=env)
        assert done.returncode == 1 and done.stderr.count("\n") == 1


def test_a_remote_index_can_be_served_again(tmp_path):
    """The second server forwards its calls to the first."""
    fill(tmp_path / "a.mvx")
    with served(f"--index=a={tmp_path / 'a.mvx'}") as first, served(f"--index=b={first.url()}") as second:
        with package.open(first.url()) as near, package.open(second.url("b")) as far:
            query = next(iter(near)).id
            assert far.get(query) == near.get(query)
            assert far.delete(ids=query) == 1 and query not in near


def test_the_client_example_runs():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "client.py"], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "4 documents are durable" in done.stdout and "d2 won by its view 1, score 1.00" in done.stdout
    assert "ended with 0" in done.stdout


def test_the_compose_file_and_prometheus_configuration_name_existing_things():
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= services.keys()
        assert set(service.get("secrets", [])) <= compose["secrets"].keys()
        named = {volume.split(":")[0] for volume in service.get("volumes", []) if not volume.startswith((".", "/"))}
        assert named <= compose["volumes"].keys()
    targets = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"]
    assert targets[0]["targets"][0].split(":")[0] in services


def test_the_dockerfile_has_existing_steps():
    text = (EXAMPLES / "Dockerfile").read_text().replace("\\\n", " ")
    steps = [line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert set(steps) <= {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK",
                          "ENTRYPOINT", "CMD"}  # fmt: skip
    assert steps[-2:] == ["ENTRYPOINT", "CMD"] and "USER" in steps


def test_the_dashboard_uses_existing_metrics():
    from mvindex_connectors.server.telemetry import Metrics

    metrics = Metrics()
    families = {family.name for family in metrics.registry.collect()}
    board = json.loads((EXAMPLES / "grafana.json").read_text())
    asked = {name for panel in board["panels"] for target in panel["targets"]
             for name in re.findall(r"mvindex_\w+", target["expr"])}  # fmt: skip
    assert len(asked) >= 12
    assert {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in asked} <= families
