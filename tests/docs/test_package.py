"""A package index shows the README with absolute links that lead to files; licences of bundled data are named."""

import re
import subprocess

import pytest
from docs_pages import ROOT, tokens_of
from test_links import links_of

hatchling = pytest.importorskip("hatchling.metadata.core")
pytest.importorskip("hatch_fancy_pypi_readme")


@pytest.fixture(scope="module")
def metadata():
    from hatchling.plugin.manager import PluginManager

    return hatchling.ProjectMetadata(str(ROOT), PluginManager())


def test_the_readme_has_absolute_links_only_and_each_leads_to_a_file(metadata):
    base = metadata.core.urls["Repository"]
    others = [link for link in links_of("README.md") if link.startswith("https://")]
    found = re.findall(r"\]\(([^)#]+)", metadata.core.readme)
    assert len(found) == len([link for link in links_of("README.md") if not link.startswith("#")])
    assert set(others) <= set(found)
    for address in set(found) - set(others):
        place = re.fullmatch(re.escape(base) + r"/(?:blob|raw)/main/(.+)", address)
        assert place and (ROOT / place[1]).is_file(), address


def test_project_and_site_have_one_address(metadata):
    base = metadata.core.urls["Repository"]
    assert all(address.startswith(base) for address in metadata.core.urls.values())
    assert f"repo_url: {base}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_changelog_has_this_version_with_its_date(metadata):
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(metadata.version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)


def test_whatever_is_bundled_is_named_in_notice():
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    command = ["git", "ls-files", "mvindex/data", "examples/squad"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("NOT RUN: needs git")
    for path in listed.stdout.split():
        assert any(f"{folder}/" in notice for folder in parents(path)), f"NOTICE does not name {path}"


def parents(path):
    """Return the folders that hold this file, but for the top two."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(2, len(parts) + 1) if parts[:length] != ["mvindex", "data"]]


def test_pictures_of_the_readme_say_what_they_show():
    pictures = [child for token in tokens_of("README.md") for child in token.children or () if child.type == "image"]
    assert pictures and all(len(picture.content) > 20 for picture in pictures)


def test_what_notice_names_is_there():
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    named = re.findall(r"^((?:mvindex|connectors|train|examples|bench|docs|tests)/[^\s,]+)", notice, flags=re.MULTILINE)
    assert len(named) > 4 and [path for path in named if not (ROOT / path).exists()] == []
