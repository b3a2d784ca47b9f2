"""Makes the modules beside these tests, and those that others share, importable."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

from browsing import browser, quiet  # noqa: E402, F401 - fixtures
