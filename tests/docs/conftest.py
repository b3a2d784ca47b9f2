"""The helpers beside the tests and those of the command line, on the path."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), *(str(FOLDER.parent / name) for name in ("e2e", "unit"))]
pytest.register_assert_rewrite("running")
