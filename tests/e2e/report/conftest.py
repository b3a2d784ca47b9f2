"""One browser for the tests of a file; none of them may leave an error in its console."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from browser import Browser

    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture(autouse=True)
def quiet(browser):
    """No page of any test may leave an error or a warning in the console."""
    browser.console()
    yield
    assert browser.console() == []
