"""Chromium, for tests that open the page as a reader would."""

from tests.browsing import browser, quiet  # noqa: F401 - fixtures
