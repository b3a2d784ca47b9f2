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


def test_the_readme_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^    import mvindex\n(?:(?:    .*)?\n)+", text, flags=re.MULTILINE)
    exec(compile(re.sub(r"^    ", "", block, flags=re.MULTILINE), "README.md", "exec"), {})
    assert "True 1 Oil reached $12 a barrel." in capsys.readouterr().out
