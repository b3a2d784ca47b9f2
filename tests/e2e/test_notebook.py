"""The notebook of examples/ runs, and shows what it was committed with.

After a change: python -m tests.e2e.test_notebook writes the outputs into it.
"""

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "first_index.ipynb"

pytestmark = pytest.mark.needs("minilm")


def executed(folder):
    """The notebook after a run of all cells in the folder."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    for needed in ("ipykernel", "pandas", "matplotlib", "pyarrow"):
        pytest.importorskip(needed)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    # execute() would leave its event loop open.
    return asyncio.run(client.async_execute())


def shown(notebook, kind):
    """The outputs of a kind, in order."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    found = [output["data"][kind] for output in outputs if kind in output.get("data", {})]
    return ["".join(text) for text in found]


def printed(notebook):
    """The text of streams, in order: warnings would be among them."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    return ["".join(output["text"]) for output in outputs if output["output_type"] == "stream"]


def without_scores(html):
    return re.sub(r"\d\.\d{3,}", "S", html)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_notebook_runs_and_shows_what_it_was_committed_with(tmp_path):
    committed = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    notebook = executed(tmp_path)
    assert [without_scores(html) for html in shown(notebook, "text/html")] == [
        without_scores(html) for html in shown(committed, "text/html")
    ]
    # Where the encoder has no ONNX form yet, a line says that it is made.
    assert printed(notebook)[-1:] == printed(committed) == ["6 documents, 23 views of 384 dimensions\n"]
    assert not [text for text in printed(notebook) if "Warning" in text]
    assert len(shown(notebook, "image/png")) == len(shown(committed, "image/png")) == 1
    assert not (tmp_path / "missions.mvx").exists()


def test_the_committed_outputs_are_those_that_matter():
    committed = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    added, first, citations, explained, nineties, everything = shown(committed, "text/html")
    assert added == "6 documents"
    assert "<mark>Without sunlight its batteries lasted less than three days.</mark>" in first
    assert re.search(r"<td>hubble</td>\n      <td>\d\.\d+</td>\n      <td>Its first images were blurred", citations)
    assert "<b>Its first images were blurred, because" in explained and explained.count("<progress ") == 4
    assert re.findall(r"<td>(hubble|cassini|webb)</td>", nineties) == ["hubble", "cassini"]
    assert everything.count('<td>{"launched"') == 6


if __name__ == "__main__":
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        result = executed(folder)
    for cell in result["cells"]:
        cell["metadata"] = {}
    nbformat.write(result, NOTEBOOK)
    sys.stdout.write(f"wrote {NOTEBOOK}\n")
