"""Examples for agent frameworks: the real framework calls the tool, and the right passage comes with its citation."""

import asyncio
import importlib.util
import runpy
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


@pytest.fixture
def event_loop():
    """The loop of this thread, closed at the end: a framework would leave one of its own open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.needs("minilm")
@pytest.mark.usefixtures("event_loop")
# These frameworks and what they import warn of their own doings.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("framework", PRINTED)
def test_the_tool_is_called_and_the_answer_names_file_and_line(framework, capsys):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"NOT RUN: needs {framework} ({INSTALLED_BY[framework]})")
    runpy.run_path(str(EXAMPLES / framework / "citing.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == PRINTED[framework]
