"""The check of a release refuses what a package index should not get."""

import importlib.util
import sys
from email.message import Message

import pytest
from docs_pages import ROOT

import mvindex

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


def test_a_draft_may_have_the_placeholder(check):
    check.check_metadata(metadata(url="https://code.example/mvindex"), is_draft=True)


def test_a_python_is_found_by_its_version_or_not_at_all(check):
    assert check.find_python("{}.{}".format(*sys.version_info[:2]))
    assert check.find_python("3.99") is None


def test_a_command_that_fails_is_named_with_its_output(check):
    with pytest.raises(check.Failed, match="exit 3\nbroken"):
        check.run(sys.executable, "-c", "import sys; sys.exit(print('broken') or 3)")
