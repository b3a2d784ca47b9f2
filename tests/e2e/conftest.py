"""The tests are no package: their helpers, beside them and beside the unit tests, are on the path."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "unit")]
pytest.register_assert_rewrite("running")
