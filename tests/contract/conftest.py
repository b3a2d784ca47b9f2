"""The folder of these tests on the path: what they share are modules beside them. Their own folders are in memory."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]
pytest.register_assert_rewrite(
    "model_base", "model_checks", "model_keeping", "model_machine", "model_reading", "model_writing"
)

from memory_folders import temporary_folders_in_memory, tmp_path, tmp_path_factory  # noqa: E402, F401 - fixtures
