"""Chromium, for tests that open the page as a reader would."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from browsing import browser, quiet  # noqa: E402, F401 - fixtures
