"""Pages that are made from the code name every command, option, request and call."""

import importlib.util
import re

import pytest
import yaml
from docs_pages import PAGES, ROOT

HOOK = ROOT / "docs" / "hooks" / "generated_pages.py"


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("generated_pages", HOOK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def nav_of():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text[text.index("\nnav:") :])["nav"]


def test_the_page_of_commands_has_every_command_with_its_options(hook):
    page = hook.cli_page()
    for name in ("ingest", "query", "serve", "train", "import faiss", "mcp"):
        assert f"\n## mvindex {name}\n" in page
    assert "`--top-k`, `-k`" in page and "`--index`, `-i`" in page and "\n## mvindex add\n" not in page


def test_the_page_of_http_has_every_request_and_links_to_bodies(hook):
    pytest.importorskip("msgspec")
    from mvindex_connectors.server.http.openapi import OPERATIONS

    page = hook.http_page()
    assert all(f"`{one.method} {one.path}`" in page for one in OPERATIONS)
    headings = set(re.findall(r"^### (\w+)$", page, re.MULTILINE))
    assert {"SearchRequest", "SearchResult", "AddRequest"} <= headings
    assert set(re.findall(r"\[(\w+)\]\(#", page)) <= headings


def test_the_page_of_grpc_has_every_call(hook):
    page = hook.grpc_page()
    assert all(f"rpc {name}(" in page for name in ("Search", "Explain", "Add", "List", "Indexes"))


@pytest.mark.parametrize("name", ["cli", "http", "grpc", "search-options"])
def test_a_page_is_what_the_code_says(hook, name):
    kept = (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")
    assert kept == hook.PAGES[name](), "run python docs/hooks/generated_pages.py"


def test_a_page_of_directives_says_in_short_what_it_documents(hook):
    for module in ("langchain_core", "llama_index", "haystack"):
        pytest.importorskip(module)
    pages = {page.stem: page.read_text(encoding="utf-8") for page in hook.summarised_pages()}
    assert {"records", "errors", "indexes", "client"} <= pages.keys()
    assert "| `IndexLocked` | Another writer has the lock of the index |" in pages["errors"]
    for text in pages.values():
        assert text == hook.summarised_page(text), "run python docs/hooks/generated_pages.py"
        assert "| |" not in text and "|  |" not in text
    assert "| Stored bytes do not match their checksum | `mvindex build` makes derived files again; " in pages["errors"]


def test_every_class_of_errors_is_listed_with_its_way_out():
    from mvindex import errors

    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(?:mvindex\.)?(\w+)` \| [^|]+ \| ([A-Z`][^|]+\.) \|$", page, re.MULTILINE))
    assert listed.keys() == {name for name, each in vars(errors).items() if isinstance(each, type)}


def test_a_table_of_a_page_is_made_anew(hook):
    page = "# Title\n\nOne sentence.\n\n::: mvindex.Hit\n"
    made = hook.summarised_page(page)
    assert made.startswith("# Title\n\nOne sentence.\n\n| name | is |\n") and made.endswith("|\n\n::: mvindex.Hit\n")
    assert hook.summarised_page(made.replace("A document", "Nothing")) == made


def test_the_list_for_programs_has_every_page_of_the_menu_with_a_sentence(hook):
    paths = [path for section in nav_of() for _, path in hook.entries_of(*section.values())]
    written = {path: ("", "# Title\n\n```bash\nls\n```\n\nA [link](x.md) first. Then more.\n") for path in paths}
    listed = hook.list_of_pages(nav_of(), written)
    assert len(re.findall(r"^- \[", listed, re.MULTILINE)) == len(paths)
    assert "](tutorials/serve-it.md): A link first.\n" in listed


def test_every_page_is_in_the_menu_once(hook):
    paths = [path for section in nav_of() for _, path in hook.entries_of(*section.values())]
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    assert len(paths) == len(set(paths))
    assert set(paths) == pages | {"notebook.md"}
