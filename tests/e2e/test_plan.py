"""`mvindex plan` as a user calls it: numbers as people write them, one plan, JSON of its schema, commands that run."""

import shlex
import signal
import subprocess
import sys
import time

import jsonschema
import pytest
from typer.main import get_command

from mvindex.cli import app
from tests.helpers.cli import lines, mvindex, ok, schema

WIKIPEDIA = ("--documents", "21M", "--views", "8", "--dim", "768", "--ram", "64G", "--disk", "2T")


def test_a_plan_for_wikipedia_names_a_layout_and_what_to_run(tmp_path):
    done = ok(mvindex("plan", *WIKIPEDIA, cwd=tmp_path))
    assert "\n* ivf-pq " in done.stdout and "mvindex build --index corpus.mvx --kind ivf-pq" in done.stdout
    assert "flat does not fit one machine" in done.stdout and not done.stderr
    assert not list(tmp_path.iterdir())


def test_the_plan_as_json_is_that_of_the_schema(tmp_path):
    (found,) = lines(mvindex("plan", *WIKIPEDIA, "--json", "--gpu", "1", cwd=tmp_path))
    jsonschema.validate(found, schema("plan"))
    assert found["views"] == 168_000_000 and found["machine"]["ram_bytes"] == 64 << 30
    assert found["layouts"][found["recommended"]]["kind"] == "ivf-pq" and not found["is_measured"]
    assert {layout["build_s"] for layout in found["layouts"]} == {None}


def test_the_commands_of_a_plan_are_commands_with_these_options(tmp_path):
    (found,) = lines(mvindex("plan", *WIKIPEDIA, "--json", cwd=tmp_path))
    commands = get_command(app).commands
    planned = [command for layout in found["layouts"] for command in layout["commands"]]
    assert len(planned) > len(found["layouts"])
    for command in planned:
        program, name, *words = shlex.split(command)
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert program == "mvindex" and {word for word in words if word.startswith("--")} <= known, command


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--documents", "many", "--ram", "64G"), "--documents 'many': expected"),
        (("--documents", "21M", "--ram", "64X"), "--ram '64X': expected"),
        (("--documents", "21M", "--ram", "64G", "--disk", "-1T"), "--disk '-1T': expected"),
        (("--documents", "21M", "--ram", "64G", "--views", "0"), "--views: expected"),
        (("--documents", "21M", "--ram", "64G", "--target-recall", "1.2"), "--target-recall: expected"),
        (("--documents", "3", "--ram", "64G", "--top-k", "4"), "--top-k: expected 1 to 3"),
    ],
)
def test_nonsense_is_refused_by_name_before_anything_is_measured(tmp_path, args, message):
    done = mvindex("plan", *args, "--measure", "--folder", "/nonexistent", cwd=tmp_path)
    assert done.returncode == 1 and message in done.stderr and not done.stdout


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    done = mvindex("plan", *WIKIPEDIA, "--measure", "--folder", "nowhere", cwd=tmp_path)
    assert done.returncode == 1 and "nowhere: cannot measure there" in done.stderr


def test_measuring_is_announced_and_gives_times(tmp_path):
    options = ("--documents", "2M", "--dim", "32", "--ram", "8G", "--measure", "--json")
    done = ok(mvindex("plan", *options, cwd=tmp_path))
    assert "measuring this machine" in done.stderr and "at most 60 s" in done.stderr
    (found,) = lines(done)
    jsonschema.validate(found, schema("plan"))
    timed = [layout for layout in found["layouts"] if layout["query_s"] is not None]
    assert found["is_measured"] and {layout["kind"] for layout in timed} >= {"exact", "ivf-pq"}
    for layout in timed:
        assert 0 < layout["query_s"] < 1000 and (layout["kind"] == "exact") == (layout["build_s"] == 0)
    assert not list(tmp_path.iterdir())


def test_measuring_can_be_interrupted_and_leaves_nothing_behind(tmp_path):
    command = [sys.executable, "-m", "mvindex", "plan", *WIKIPEDIA, "--measure"]
    # A shell that starts tests in the background has them ignore SIGINT.
    signals = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    child = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **signals
    )
    until = time.monotonic() + 60
    while time.monotonic() < until and not any(tmp_path.glob("mvindex-plan-*/*.mvx")):
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=20)
    assert child.returncode == 130 and not output
    assert not list(tmp_path.iterdir())
