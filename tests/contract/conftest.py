"""The folder of these tests on the path: what they share are modules beside them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite(
    "model_base", "model_checks", "model_keeping", "model_machine", "model_reading", "model_writing"
)
