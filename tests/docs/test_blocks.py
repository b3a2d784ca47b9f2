"""Every code block of the README and the docs is run, or read where it cannot be; what it shows is what it prints."""

import ast
import importlib.util
import json
import os
import shutil
import sys

import pytest
import yaml
from docs_material import make_indexes, make_material
from docs_not_run import NOT_RUN
from docs_pages import PAGES, RUNS, blocks_of
from docs_parsing import check_block
from docs_running import Page

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

# What is only shown, and how it is read.
SHOWN = {"text": str, "proto": str, "json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
# Pages that speak of indexes which are there already: copies of one that holds corpus.tsv.
INDEXES = {
    "docs/for-agents.md": ("corpus.mvx",),
    "docs/how-to/analysis.md": ("corpus.mvx",),
    "docs/how-to/ask-more.md": ("corpus.mvx",),
    "docs/how-to/choose-an-engine.md": ("corpus.mvx",),
    "docs/how-to/evaluation.md": ("corpus.mvx",),
    "docs/how-to/milvus.md": ("corpus.mvx",),
    "docs/how-to/scale.md": ("corpus.mvx",),
    "docs/explanation/trust.md": ("corpus.mvx",),
    "docs/how-to/serving.md": ("wiki.mvx", "news.mvx"),
}
# What a word in the blocks of a page needs.
NEEDED = {"curl ": "curl", "milvus": "milvus-lite"}
# They train, and analyse, for minutes.
SLOW = {"docs/how-to/training.md", "docs/how-to/analysis.md", "docs/how-to/papers.md"}
# Packages that need not be installed.
FRAMEWORKS = {
    "dspy",
    "haystack",
    "langchain_classic",
    "langchain_core",
    "llama_index",
    "pydantic_ai",
    "sentence_transformers",
    "smolagents",
}


def is_not_run(block, one):
    """Whether that entry of the table means this block."""
    return block.page == one.page and block.code.startswith(one.begins)


def reason_of(block):
    """Why a block is not run; None for one that is."""
    return next((one.why for one in NOT_RUN if is_not_run(block, one)), None)


def runs_of(page):
    return [block for block in blocks_of(page) if block.language in RUNS and reason_of(block) is None]


@pytest.fixture(scope="session")
def material(tmp_path_factory):
    """A folder of what every page is given, and one of indexes."""
    given, indexes = tmp_path_factory.mktemp("given"), tmp_path_factory.mktemp("indexes")
    make_material(given)
    make_indexes(given, indexes)
    return given, indexes


def with_needs(page):
    """Return the page as a test's argument, marked with what its blocks need; the README is tested by default."""
    code = "\n".join(block.code for block in runs_of(page))
    marks = [pytest.mark.needs(what) for word, what in NEEDED.items() if word in code]
    marks += [pytest.mark.full] if page != "README.md" else []
    return pytest.param(page, marks=[*marks, pytest.mark.long] if page in SLOW else marks)


@pytest.mark.needs("minilm")
@pytest.mark.parametrize("page", [with_needs(page) for page in PAGES if runs_of(page)])
def test_what_a_page_shows_can_be_done(page, material, tmp_path, monkeypatch):
    skip_without_frameworks(page)
    for name, value in (("COLUMNS", "100"), ("TERM", "dumb"), ("MVINDEX_INDEX", None)):
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    # As in an environment that is active: Python's blocks start commands too.
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    given, indexes = material
    folder = shutil.copytree(given, tmp_path / "folder", symlinks=True)
    for name in INDEXES.get(page, ()):
        shutil.copytree(indexes / "corpus.mvx", folder / name)
    monkeypatch.chdir(folder)
    state = Page()
    try:
        for block in runs_of(page):
            state.run(block)
    finally:
        state.close()


def skip_without_frameworks(page):
    code = "\n".join(block.code for block in runs_of(page) if block.language == "python")
    imported = {node.module.split(".")[0] for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)}
    for name in sorted(imported & FRAMEWORKS):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"NOT RUN: needs the package {name}")


@pytest.mark.parametrize("page", PAGES)
def test_what_is_only_shown_can_be_read(page):
    for block in blocks_of(page):
        if block.language not in RUNS:
            assert block.language in SHOWN, f"{block.place}: a block of {block.language!r}; name one that is known"
            SHOWN[block.language](block.code)


@pytest.mark.parametrize("page", sorted({one.page for one in NOT_RUN}))
def test_commands_that_are_not_run_are_commands_that_there_are(page):
    for block in blocks_of(page):
        if reason_of(block) is not None and block.language == "bash":
            check_block(block.code)
        elif reason_of(block) is not None:
            compile(block.code, block.place, "exec")


def test_what_is_not_run_is_there_once_and_has_a_reason():
    for one in NOT_RUN:
        places = [block.place for page in PAGES for block in blocks_of(page) if is_not_run(block, one)]
        assert len(places) == 1, f"{one}: means {places}"
        assert one.why.strip()
