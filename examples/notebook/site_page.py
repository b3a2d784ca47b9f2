"""Adds the notebook, with its committed outputs, to the site of the docs: a hook of MkDocs. Nothing is executed."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from nbconvert import MarkdownExporter

NOTEBOOK = Path(__file__).with_name("first_index.ipynb")


def on_files(files: Any, config: Any) -> Any:
    """Add the page notebook.md and its pictures."""
    page, resources = MarkdownExporter().from_filename(str(NOTEBOOK), {"output_files_dir": "notebook_files"})
    for name, content in {"notebook.md": page, **resources["outputs"]}.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to the notebook, which in a checkout are to its file, to that page."""
    return markdown.replace("](../examples/notebook/first_index.ipynb)", "](notebook.md)")
