"""`mvindex families` lists what there is, with what a trained family needs."""

import json

from typer.testing import CliRunner

from mvindex.cli.program import _add_commands, full_app
from mvindex.encoder.checkpoint.families import BUILT_IN, families


def shown(*options):
    _add_commands()
    done = CliRunner().invoke(full_app(), ["families", *options], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_each_family_is_an_object_with_what_its_views_are():
    rows = [json.loads(line) for line in shown("--json").splitlines()]
    assert [row["family"] for row in rows] == [family.name for family in families()]
    by_name = {row["family"]: row for row in rows}
    assert by_name["poly"]["weights"] == "its own" and by_name["single"]["weights"] == "any"
    assert by_name["sentences"]["max_views"] == 32 and by_name["sentences"]["spans"] is True


def test_the_table_has_a_line_for_each_built_in_family():
    table = shown()
    assert all(family.name in table and family.summary for family in BUILT_IN)
