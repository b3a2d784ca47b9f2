"""Make the helper modules of these tests and the shared ones importable."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

from browsing import browser, quiet  # noqa: E402, F401 - fixtures
