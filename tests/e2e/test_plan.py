"""`mvindex plan` as a user calls it: numbers as people write them, one plan, JSON of its schema, commands that run."""

import json
import shlex

import jsonschema
import pytest
from running import lines, mvindex, ok, schema
from typer.main import get_command

from mvindex.cli import app

WIKIPEDIA = ("--documents", "21M", "--views", "8", "--dim", "768", "--ram", "64G", "--disk", "2T")


def test_a_plan_for_wikipedia_names_a_layout_and_what_to_run(tmp_path):
    done = ok(mvindex("plan", *WIKIPEDIA, "--no-calibrate", cwd=tmp_path))
    assert "-> ivf-pq" in done.stdout and "mvindex build --index corpus.mvx --kind ivf-pq" in done.stdout
    assert "x flat does not fit" in done.stdout and "times were not asked for" in done.stdout
    assert not list(tmp_path.iterdir())


def test_the_plan_as_json_is_that_of_the_schema(tmp_path):
    (found,) = lines(mvindex("plan", *WIKIPEDIA, "--no-calibrate", "--json", "--gpu", "1", cwd=tmp_path))
    jsonschema.validate(found, schema("plan"))
    assert found["views"] == 168_000_000 and found["machine"]["ram_bytes"] == 64 << 30
    assert found["layouts"][found["recommended"]]["kind"] == "ivf-pq" and not found["is_timed"]
    assert {layout["seconds"] for layout in found["layouts"]} == {None}


def test_the_commands_of_a_plan_are_commands_with_these_options(tmp_path):
    (found,) = lines(mvindex("plan", *WIKIPEDIA, "--no-calibrate", "--json", cwd=tmp_path))
    commands = get_command(app).commands
    told = [command for layout in found["layouts"] for command in layout["commands"]]
    assert len(told) > len(found["layouts"])
    for command in told:
        program, name, *words = shlex.split(command)
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert program == "mvindex" and {word for word in words if word.startswith("--")} <= known, command


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--documents", "many", "--ram", "64G"), "--documents 'many': wanted"),
        (("--documents", "21M", "--ram", "64X"), "--ram '64X': wanted"),
        (("--documents", "21M", "--ram", "64G", "--disk", "-1T"), "--disk '-1T': wanted"),
        (("--documents", "21M", "--ram", "64G", "--views", "0"), "--views 0: wanted"),
        (("--documents", "21M", "--ram", "64G", "--target-recall", "1.2"), "target_recall is 1.2"),
        (("--documents", "3", "--ram", "64G", "--top-k", "4"), "--top-k 4: wanted 1 to 3"),
    ],
)
def test_nonsense_is_refused_by_name_before_anything_is_measured(tmp_path, args, message):
    done = mvindex("plan", *args, "--folder", "/nonexistent", cwd=tmp_path)
    assert done.returncode == 1 and message in done.stderr and not done.stdout


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    done = mvindex("plan", *WIKIPEDIA, "--folder", "nowhere", cwd=tmp_path)
    assert done.returncode == 1 and "nowhere: cannot measure there" in done.stderr


def test_rates_without_measuring_make_no_sense_together(tmp_path):
    done = mvindex("plan", *WIKIPEDIA, "--no-calibrate", "--calibration", "rates.json", cwd=tmp_path)
    assert done.returncode == 2 and "--calibration" in done.stderr


@pytest.mark.full
def test_a_machine_is_measured_once_and_its_rates_serve_again(tmp_path):
    asked = ("--documents", "2M", "--dim", "32", "--ram", "8G", "--calibration", "rates.json", "--json")
    first = mvindex("plan", *asked, cwd=tmp_path)
    (found,) = lines(first)
    jsonschema.validate(found, schema("plan"))
    # What was measured on is gone, the rates stay.
    assert [entry.name for entry in tmp_path.iterdir()] == ["rates.json"]
    for layout in found["layouts"]:
        for name in ("alone", "batch", "build"):
            span = layout["seconds"][name]
            assert 0 < span["low"] <= span["mid"] <= span["high"] < 10**7, (layout["kind"], name)
    rates = json.loads((tmp_path / "rates.json").read_text())
    assert all(0 < span["mid"] < 1e-3 for span in rates["scans"].values())
    (again,) = lines(mvindex("plan", *asked, cwd=tmp_path))
    assert again == found
