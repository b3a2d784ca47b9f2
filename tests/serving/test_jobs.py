"""Administration by jobs: they outlive their callers, run one at a time for an index, and never block readers."""

import json
import os
import time

import numpy as np
import pytest
from serving_tools import fill, served, vectors, wait_for
from test_http import ask

import mvindex
from mvindex import Document
from mvindex.errors import (
    ConfigError,
    IndexLocked,
    MvindexError,
    NoSuchIndex,
    NotPermitted,
    QueryError,
    RemoteError,
    TimedOut,
    Unsupported,
)
from mvindex_connectors.remote import Access, CallSettings, IndexClient, ServerAdmin
from mvindex_connectors.remote.admin import JobState, RemoteJob
from tests.helpers.cli import lines
from tests.helpers.cli import mvindex as mvindex_command

ADMIN, WRITER, BOUND = (f"{name}-0123456789abcdef" for name in ("admin", "writer", "bound"))
QUICK = CallSettings(timeout_s=20, retry_s=0)
END_S = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    fill(folder / "a.mvx", count=300)
    (folder / "tokens").write_text(f"admin {ADMIN}\nread-write {WRITER}\nadmin {BOUND} indexes=mine\n")
    (folder / "tokens").chmod(0o600)
    return folder


def serve(folder, *more):
    return served(
        f"--index=a={folder / 'a.mvx'}", "--http", "0", "--token-file", folder / "tokens", "--admin-folder",
        folder / "admin", *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def serving(folder):
    with serve(folder) as serving:
        yield serving


def admin(serving, name="a", token=ADMIN):
    return ServerAdmin(serving.url(name), access=Access(token=token), settings=QUICK)


def client(serving, name="a", token=ADMIN):
    return IndexClient(serving.url(name), access=Access(token=token), settings=QUICK)


def test_an_engine_is_built_tuned_and_removed_while_clients_search(serving):
    with client(serving) as one:
        expected = [hit.id for hit in one.search(vectors(1)[0], top_k=5, exact=True).hits]
        told = []
        report = one.admin.build("hnsw").wait(END_S, lambda *step: told.append(step))
        assert (report["kind"], report["documents"]) == ("hnsw", 300) and one.info().kind == "hnsw"
        assert [hit.id for hit in one.search(vectors(1)[0], top_k=5, exact=True).hits] == expected
        tuned = one.admin.tune(vectors(40, seed=2), target_recall=0.5, top_k=5).wait(END_S)
        assert tuned["chosen"]["recall"] >= 0.5 and one.info().search == tuned["chosen"]["search"]
        work = {"tune": {"queries": vectors(40, seed=2).tolist(), "target_recall": 0.5, "top_k": 5}}
        _, _, job = ask(serving, "POST", "/v1/admin/jobs", {"index": "a", **work}, token=ADMIN)
        again = RemoteJob(one.admin, one.admin.job_status(job["id"])).wait(END_S)
        assert (again["queries"], again["are_own_views"]) == (40, False)
        assert one.admin.build("exact").wait(END_S)["kind"] == "exact" and one.info().kind == "exact"


def test_a_compaction_gives_back_deleted_rows(serving):
    with client(serving) as one:
        one.add_views([Document(f"x{n}", "x") for n in range(30)], vectors(30))
        one.delete(ids=[f"x{n}" for n in range(30)])
        assert one.info().num_deleted == 30
        assert one.admin.compact().wait(END_S)["dropped"] == 30
        assert one.info().num_deleted == 0 and len(one) == 300


def test_a_snapshot_lies_in_the_folder_of_the_server_and_nowhere_else(serving, folder):
    with client(serving) as one:
        report = one.admin.snapshot("monday").wait(END_S)
        assert (report["path"], report["documents"]) == ("monday", 300)
        with mvindex.open(folder / "admin" / "snapshots" / "monday") as copied:
            assert len(copied) == 300
        for name in ("monday", "", "../x", "/tmp/x", "a/b", "..", ".", "x" * 101, "a\0b", "s3://bucket/x", "~"):
            with pytest.raises((ConfigError, QueryError)):
                one.admin.snapshot(name)
    assert os.listdir(folder / "admin" / "snapshots") == ["monday"]


def test_an_index_is_created_filled_and_dropped(serving, folder):
    with admin(serving, "made") as made:
        assert made.create(dim=16, lexical="english", filter_fields={"n": "int"}).wait(END_S) == {"index": "made"}
        with client(serving, "made") as one:
            one.add_views([Document("d", "some words", "", {"n": 1})], vectors(1))
            assert one.search(vectors(1)[0], text="words", mode="hybrid").hits[0].id == "d"
            assert one.info().filter_fields == {"n": "int"}
            with pytest.raises(ConfigError, match="there is one of this name"):
                made.create(dim=16)
            # The lock names the server.
            with pytest.raises(IndexLocked, match="made"), mvindex.open(folder / "admin/indexes/made.mvx") as local:
                local.delete(all=True)
            with pytest.raises(ConfigError, match="expected the name of the index again"):
                made.drop("a")
            assert len(one) == 1
            assert made.drop("made").wait(END_S) == {"index": "made"}
            with pytest.raises(NoSuchIndex):
                len(one)
        assert os.listdir(folder / "admin" / "indexes") == []
        assert made.create(dim=4).wait(END_S) and made.drop("made").wait(END_S)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dim": 4, "encoder": "minilm-views"},
        {"encoder": "/etc"},
        {"encoder": "org/model"},
        {"encoder": "openai:x#y"},
    ],
)
def test_an_encoder_is_a_packaged_one(serving, settings):
    with admin(serving, "encoded") as one, pytest.raises(ConfigError):
        one.create(**settings)


@pytest.mark.parametrize("name", [".hidden", "..", "a b", "x" * 101])
def test_a_created_index_has_a_plain_name(serving, name):
    body = {"index": name, "create": {"dim": 4}}
    assert ask(serving, "POST", "/v1/admin/jobs", body, token=ADMIN)[0] == 400


def test_an_index_of_the_command_line_is_not_dropped(serving):
    with admin(serving) as one, pytest.raises(Unsupported, match="command line"):
        one.drop("a")


def test_only_admins_administer_and_only_what_exists_for_them(serving):
    body = {"index": "a", "compact": {}}
    assert ask(serving, "POST", "/v1/admin/jobs", body, token=WRITER)[0] == 403
    assert ask(serving, "GET", "/v1/admin/jobs", token=WRITER)[0] == 403
    with admin(serving, token=WRITER) as one:
        for call in (one.compact, one.jobs, lambda: one.cancel("x"), lambda: one.job_status("x")):
            with pytest.raises(NotPermitted, match="admin"):
                call()
    with admin(serving) as one:
        job = one.compact()
        job.wait(END_S)
    with (
        admin(serving, token=BOUND) as bound,
        admin(serving, "mine", BOUND) as mine,
        admin(serving, "b", BOUND) as other,
    ):
        with pytest.raises(NoSuchIndex):
            bound.compact()
        with pytest.raises(NoSuchIndex):
            other.create(dim=4)
        for call in (bound.job_status, bound.cancel):
            with pytest.raises(QueryError, match="the id of a job"):
                call(job.id)
        mine.create(dim=4).wait(END_S)
        assert {each.index for each in mine.jobs()} == {"mine"}
        mine.drop("mine").wait(END_S)


def test_one_job_of_an_index_runs_at_a_time_and_a_cancelled_one_changes_nothing(tmp_path):
    fill(tmp_path / "a.mvx", count=6000)
    with served(f"--index=a={tmp_path / 'a.mvx'}", "--http", "0") as serving, client(serving, token=None) as one:
        job = one.admin.build("hnsw", parameters={"M": 32, "efConstruction": 200})
        with pytest.raises(IndexLocked, match=job.id):
            one.admin.compact()
        # Its caller may go, and readers do not wait for it.
        waits = []
        while job.status().state is JobState.RUNNING and len(waits) < 20:
            begun = time.monotonic()
            assert len(one.search(vectors(1)[0]).hits) == 10
            waits.append(time.monotonic() - begun)
        with pytest.raises(TimedOut, match="goes on"):
            job.wait(0.01)
        job.cancel()
        with pytest.raises(RemoteError, match="cancelled"):
            job.wait(END_S)
        assert np.median(waits) < 2
        assert one.info().kind == "exact" and one.admin.compact().wait(END_S)["documents"] == 6000
        assert [each.state for each in one.admin.jobs()] == [JobState.CANCELLED, JobState.DONE]


def test_a_failed_job_raises_the_error_of_the_server_without_its_paths(serving, folder):
    with client(serving) as one:
        for start in (
            lambda: one.admin.build("no-such-kind"),
            lambda: one.admin.build("hnsw", parameters={"nlist": 3}),
            lambda: one.admin.tune(),
        ):
            job = start()
            with pytest.raises(MvindexError) as failed:
                job.wait(END_S)
            assert job.status().state is JobState.FAILED and str(folder) not in str(failed.value)
            assert isinstance(failed.value, ConfigError)


def test_a_repeated_start_returns_the_same_job(serving):
    body = {"index": "a", "compact": {}, "idempotency_key": "again"}
    status, _, first = ask(serving, "POST", "/v1/admin/jobs", body, token=ADMIN)
    assert status == 200
    assert ask(serving, "POST", "/v1/admin/jobs", body, token=ADMIN)[2]["id"] == first["id"]
    path = f"/v1/admin/jobs/{first['id']}"
    wait_for(lambda: ask(serving, "GET", path, token=ADMIN)[2]["state"] == "done")
    status, _, ended = ask(serving, "POST", f"{path}/cancel", token=ADMIN)
    assert (status, ended["state"], ended["result"]["documents"]) == (200, "done", 300)
    assert ended["ended_at"] >= ended["started_at"] > 1e9
    listed = ask(serving, "GET", "/v1/admin/jobs", token=ADMIN)[2]["jobs"]
    assert [each["id"] for each in listed].count(first["id"]) == 1
    # The key counts for the work that it came with.
    other = {"index": "none", "compact": {}, "idempotency_key": "again"}
    assert ask(serving, "POST", "/v1/admin/jobs", other, token=ADMIN)[0] == 404
    status, _, missing = ask(serving, "GET", "/v1/admin/jobs/nope", token=ADMIN)
    assert (status, missing["error"]["class"]) == (404, "QueryError")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"index": "a"},
        {"index": "a", "compact": {}, "drop": {"confirm": "a"}},
        {"index": "a", "compact": {"all": True}},
        {"index": "a", "drop": {}},
        {"index": "a", "build": {"target_recall": 2}},
        {"index": "a", "build": {"parameters": {"M": "x"}}},
        {"index": "a", "tune": {"queries": [[1.0], [1.0, 2.0]]}},
        {"index": "a", "tune": {"top_k": 0}},
        {"index": "a", "create": {"dim": 4, "path": "/tmp/x"}},
        {"index": "new", "create": {"dim": 4, "dtype": "fp7"}},
        {"index": "a", "snapshot": {"name": "../x"}},
    ],
)
def test_a_malformed_job_is_refused_or_fails(serving, body):
    status, _, answer = ask(serving, "POST", "/v1/admin/jobs", body, token=ADMIN)
    if status == 200:
        path = f"/v1/admin/jobs/{answer['id']}"
        wait_for(lambda: ask(serving, "GET", path, token=ADMIN)[2]["state"] == "failed")
    else:
        assert status == 400, json.dumps(answer)


def test_created_indexes_are_served_again_and_jobs_of_the_past_have_ended(folder, tmp_path):
    (tmp_path / "indexes" / ".new-half.mvx").mkdir(parents=True)
    # As a killed snapshot job leaves it.
    (tmp_path / "snapshots" / ".half.123.0a1b2c3d.new" / "generation-000001").mkdir(parents=True)
    arguments = [f"--index=a={folder / 'none.mvx'}", "--admin-folder", tmp_path]
    fill(folder / "none.mvx", count=3)
    with served(*arguments) as serving, admin(serving, "kept", None) as one:
        one.create(dim=16).wait(END_S)
        with client(serving, "kept", None) as kept:
            kept.add_views([Document("d", "x")], vectors(1))
        past = one.jobs()[0].id
    with served(*arguments) as serving, client(serving, "kept", None) as kept:
        assert len(kept) == 1 and os.listdir(tmp_path / "indexes") == ["kept.mvx"]
        assert os.listdir(tmp_path / "snapshots") == []
        assert kept.admin.job_status(past).state is JobState.ENDED
        for unknown in (past.split("-")[0] + "-x", "nope", f"{'0' * 12}-1x"):
            with pytest.raises(QueryError):
                kept.admin.job_status(unknown)
        assert kept.admin.jobs() == []


def test_without_the_folder_nothing_is_created(folder, tmp_path):
    fill(tmp_path / "a.mvx", count=3)
    with served(f"--index=a={tmp_path / 'a.mvx'}") as serving, admin(serving, "new", None) as one:
        with pytest.raises(Unsupported, match="--admin-folder"):
            one.create(dim=4)
        with client(serving, token=None) as existing, pytest.raises(Unsupported, match="--admin-folder"):
            existing.admin.snapshot("x")


def test_a_server_that_only_reads_changes_nothing(tmp_path):
    fill(tmp_path / "a.mvx", count=3)
    with served(f"--index=a={tmp_path / 'a.mvx'}", "--read-only") as serving, client(serving, token=None) as one:
        for call in (one.admin.build, one.admin.compact, one.admin.tune):
            with pytest.raises(Unsupported, match="read-only"):
                call()


def test_commands_work_on_an_index_of_a_server(serving, tmp_path, monkeypatch):
    monkeypatch.setenv("MVINDEX_TOKEN", ADMIN)
    place = ("--index", serving.url())

    def report(*words):
        (row,) = lines(mvindex_command(*words, "--json", cwd=tmp_path))
        return row

    assert report("build", "--kind", "hnsw", *place)["kind"] == "hnsw"
    np.save(tmp_path / "queries.npy", vectors(30))
    tuned = report("tune", *place, "--target-recall", "0.3", "--queries", "queries.npy")
    assert tuned["chosen"]["recall"] >= 0.3
    assert report("build", "--kind", "exact", *place)["kind"] == "exact"
    assert report("compact", *place)["documents"] == 300
    assert report("snapshot", "by-command", *place)["path"] == "by-command"
    new = ("--index", serving.url("commanded"))
    assert report("admin", "create", "--dim", "4", *new) == {"index": "commanded"}
    assert report("admin", "drop", "--confirm", "commanded", *new) == {"index": "commanded"}
    listed = lines(mvindex_command("admin", "jobs", "--json", *place, cwd=tmp_path))
    assert [row["kind"] for row in listed][-2:] == ["create", "drop"]
    assert report("admin", "cancel", listed[-1]["id"], *place)["state"] == "done"
    for words, message in (
        (("build", "--lexical", "english", *place), "works on the index itself"),
        (("build", "--questions", "q.jsonl", *place), "q.jsonl"),
        (("tune", "--fusion", "--queries", "q.jsonl", *place), "--fusion"),
        (("snapshot", "x", "--keep", "3", *place), "--keep"),
        (("admin", "jobs", "--index", "some.mvx"), "behind a server"),
    ):
        done = mvindex_command(*words, cwd=tmp_path)
        assert done.returncode == 1 and message in done.stderr, done.stderr
