"""What the README and the examples show works as shown."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.needs("minilm")


def test_the_quickstart_answers_from_the_right_views(capsys):
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert "oil (" in shown and "price of oil had risen" in shown
    assert "plague (" in shown and "reached Crimea by 1343" in shown
    assert "since 1900: ['oil']" in shown


def test_the_drpq_example_shows_what_the_temperature_does(capsys):
    runpy.run_path(str(ROOT / "examples" / "drpq.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert "max: [('history'," in shown and "drpq, T = 0.05: [('history'," in shown
    assert "drpq, T = 1.0: [('crisis'," in shown
    heaviest = re.findall(r"(\S+) x \S+  The embargo made oil four times as expensive", shown)
    assert len(heaviest) == 2 and float(heaviest[0]) < 0.4 < 0.9 < float(heaviest[1])


def run_python_of(document):
    """Nothing; the Python that a document shows has been run, in the current directory."""
    text = (ROOT / document).read_text(encoding="utf-8")
    (block,) = re.findall(r"^    import .+\n(?:(?:    .*)?\n)+", text, flags=re.MULTILINE)
    exec(compile(re.sub(r"^    ", "", block, flags=re.MULTILINE), document, "exec"), {})


def test_the_readme_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_python_of("README.md")
    assert "True 1 Oil reached $12 a barrel." in capsys.readouterr().out


def test_the_python_of_the_api_page_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_python_of("docs/api.md")
    # At T = 1 the first document weighs 1 and 0 with e / (e + 1) and 1 / (e + 1); the other has 0.75 twice.
    assert capsys.readouterr().out.splitlines() == [
        "one view fits",
        "one view fits",
        "[('both nearly fit', 0.75), ('one view fits', 0.731)]",
        "0 1.0 0.731",
        "1 0.0 0.269",
    ]
