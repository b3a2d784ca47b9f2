"""The check of a release refuses what a package index should not get."""

import importlib.util
import re
import subprocess
import sys
from email.message import Message

import pytest
from docs_pages import ROOT

import mvindex

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PATH = ROOT / ".ci" / "release_check.py"
if not PATH.exists():
    pytest.skip("needs a checkout", allow_module_level=True)


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("release_check", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def metadata(version=mvindex.__version__, url="https://host.test/mvindex", readme="[a](https://host.test/a)"):
    made = Message()
    made["Version"], made["Project-URL"] = version, f"Repository, {url}"
    made.set_payload(readme)
    return made


def test_sound_metadata_pass(check):
    check.check_metadata(metadata(), is_draft=False)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": "99.0"}, "expected a heading with a date for version 99.0"),
        ({"readme": "[a](docs/a.md)"}, "expected absolute links"),
        ({"url": "https://code.example/mvindex"}, "expected the repository's address"),
    ],
)
def test_a_fault_in_the_metadata_is_named(check, changed, said):
    with pytest.raises(check.Failed, match=said):
        check.check_metadata(metadata(**changed), is_draft=False)


def test_the_address_is_the_same_everywhere_and_in_the_two_files_that_the_guide_names():
    address = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    listed = subprocess.run(
        ["git", "grep", "-lF", address], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    guide, own = "docs/contribute/release.md", "tests/docs/test_release.py"
    assert set(listed.split()) - {guide, own} == {"pyproject.toml", "mkdocs.yml"}
    found = re.findall(r"https://[\w.]+/[\w./-]*mvindex\b", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert len(found) == 7 and set(found) == {address}


def test_what_is_left_out_is_named(check):
    ran = [("3.11", "base"), ("3.11", "train")]
    lines = list(check.not_run(ran, ["base", "docs", "faiss", "train"], ["3.99"]))
    assert lines == [
        "NOT RUN: Python 3.10, 3.12, 3.13: not chosen",
        "NOT RUN: Python 3.99: not found here",
        "NOT RUN: extras faiss: not chosen",
        "NOT RUN: extras docs: for developers, or they need a GPU",
    ]


def test_a_draft_may_have_the_placeholder(check):
    check.check_metadata(metadata(url="https://code.example/mvindex"), is_draft=True)


def test_a_python_is_found_by_its_version_or_not_at_all(check):
    assert check.find_python("{}.{}".format(*sys.version_info[:2]))
    assert check.find_python("3.99") is None


def test_a_command_that_fails_is_named_with_its_output(check):
    with pytest.raises(check.Failed, match="exit 3\nbroken"):
        check.run(sys.executable, "-c", "import sys; sys.exit(print('broken') or 3)")
