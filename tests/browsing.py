"""The fixtures of tests in a browser; a conftest imports them. Playwright is imported by what uses them alone."""

import pytest


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One for the tests of a file."""
    from tests.browser import Browser

    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture
def quiet(browser):
    """No page of any test that uses this may leave an error or a warning in the console, the policy's above all."""
    browser.console()
    yield
    assert browser.console() == []
