"""Examples for agent frameworks: the real framework calls the tool, and the right passage comes with its citation."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
QUOTED = '"The pump starts at eight bar." [guide.md, line 11]'
PRINTED = {
    "dspy": [f"At eight bar. {QUOTED}"] * 2,
    "pydantic_ai": ["The pump starts at eight bar. [guide.md, line 11]"],
    "smolagents": ["The pump starts at eight bar. [guide.md, line 11]"],
}
INSTALLED_BY = {
    "dspy": "the extra agents-dev",
    "pydantic_ai": "the extra frameworks-dev",
    "smolagents": "the extra frameworks-dev",
}


@pytest.mark.needs("minilm")
@pytest.mark.parametrize("framework", PRINTED)
def test_the_tool_is_called_and_the_answer_names_file_and_line(framework):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"NOT RUN: needs {framework} ({INSTALLED_BY[framework]})")
    # In a process of its own: these frameworks warn, and change logging.
    command = [sys.executable, str(EXAMPLES / framework / "citing.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == PRINTED[framework]
