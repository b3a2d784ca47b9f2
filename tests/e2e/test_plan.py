"""`mvindex plan` as a user calls it: numbers as people write them, one plan, JSON of its schema, commands that run."""

import shlex

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
    assert found["layouts"][found["recommended"]]["kind"] == "ivf-pq" and found["machine"]["cores"] == 2


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
def test_nonsense_is_refused_by_name(tmp_path, args, message):
    done = mvindex("plan", *args, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and not done.stdout


def test_times_are_of_a_reference_machine_and_builds_fall_with_its_cores(tmp_path):
    done = ok(mvindex("plan", *WIKIPEDIA, "--cores", "16", cwd=tmp_path))
    text = " ".join(done.stdout.split())
    assert "Times are of a reference machine" in text and "a build on 16 of its cores" in text
    (two,), (four,) = (lines(mvindex("plan", *WIKIPEDIA, "--json", "--cores", n, cwd=tmp_path)) for n in ("2", "4"))
    for slow, fast in zip(two["layouts"], four["layouts"], strict=True):
        assert slow["build_s"] == pytest.approx(2 * fast["build_s"]) and slow["query_s"] == fast["query_s"] > 0
