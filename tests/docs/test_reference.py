"""The API reference names everything public, and everything that it names has a docstring."""

import importlib
import inspect
import re

import pytest
from docs_pages import ROOT

import mvindex
import mvindex.testing
from mvindex.errors import ExtraMissing
from mvindex.store.filters import OPERATORS

DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)
# Written by hand; the others are made from docstrings, or by docs/hooks/generated_pages.py.
WRITTEN = {"api.md", "configuration.md", "limits.md", "stability.md"}
PAGES = sorted(page for page in (ROOT / "docs" / "reference").glob("*.md") if page.name not in WRITTEN)
DOCUMENTED = [name for page in PAGES for name in DIRECTIVE.findall(page.read_text(encoding="utf-8"))]
# Packages that need not be installed.
FRAMEWORKS = {"haystack", "langchain_core", "llama_index"}


def public_names():
    remote = pytest.importorskip("mvindex_connectors.remote")
    training = pytest.importorskip("mvindex_train")
    return [
        f"{module.__name__}.{name}"
        for module in (mvindex, mvindex.testing, remote, training)
        for name in module.__all__
    ]


def find(path):
    """The object of a dotted path; skips the test where a framework is not installed."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, ExtraMissing) as err:
        missing = getattr(err if isinstance(err, ImportError) else err.__cause__, "name", None) or ""
        if missing.split(".")[0] not in FRAMEWORKS:
            raise
        pytest.skip(f"NOT RUN: needs the package {missing}")


def test_every_public_name_is_in_the_reference_once():
    missing = set(public_names()) - set(DOCUMENTED)
    assert not missing, f"docs/reference: no ::: directive for {sorted(missing)}"
    assert len(DOCUMENTED) == len(set(DOCUMENTED))


def test_every_page_of_the_reference_has_a_title_and_a_directive_or_is_made_by_a_program():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.startswith("# ") and (DIRECTIVE.search(text) or "\nGenerated from" in text), page.name


@pytest.mark.parametrize("path", DOCUMENTED)
def test_whatever_is_in_the_reference_has_a_docstring(path):
    value = find(path)
    assert inspect.getdoc(value), path
    if inspect.isclass(value):
        assert not undocumented(value), f"{path}: no docstring for {undocumented(value)}"


def undocumented(cls):
    """Public methods and properties of the class itself that have no docstring; tests of a contract need none."""
    members = ((name, member) for name, member in vars(cls).items() if not name.startswith(("_", "test_")))
    return [
        name
        for name, member in members
        if (inspect.isroutine(member) or isinstance(member, property | classmethod | staticmethod))
        and not inspect.getdoc(member)
    ]


@pytest.mark.parametrize("page", ["docs/how-to/filters.md", "connectors/mvindex_connectors/server/http/page/page.html"])
def test_every_operator_of_filters_is_named(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [word for word in OPERATORS if not re.search(rf"[`>\"]{word}[`<\"]", text)] == []
