"""Every link of every page leads to a file of the checkout, and to a heading of it; mkdocs looks after the site."""

import re

import pytest
from docs_pages import PAGES, ROOT, tokens_of

OTHERS = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/squad/README.md", "examples/slurm/README.md"]


def links_of(page):
    for token in tokens_of(page):
        for child in token.children or ():
            address = child.attrGet("href") or child.attrGet("src")
            if address:
                yield str(address)


def anchors_of(page):
    """The anchors of a page's headings: their words in lower case, joined by hyphens."""
    tokens = tokens_of(page)
    for opening, inside in zip(tokens, tokens[1:], strict=False):
        if opening.type == "heading_open":
            yield re.sub(r"[^\w\- ]", "", inside.content.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, *OTHERS])
def test_links_lead_to_what_is_there(page):
    for address in links_of(page):
        if re.match(r"[a-z]+:", address):
            continue
        path, _, anchor = address.partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert target.exists(), f"{page}: {address} leads nowhere"
        assert not anchor or anchor in anchors_of(target.relative_to(ROOT).as_posix()), f"{page}: no heading {address}"


def test_links_are_found_and_headings_have_anchors():
    assert "docs/reference/limits.md" in list(links_of("README.md"))
    assert {"what-is-promised", "what-is-not-promised"} <= set(anchors_of("docs/explanation/trust.md"))
