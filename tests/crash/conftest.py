"""The folder of the crash tests' helpers on the path, and their folders in memory."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

from memory_folders import temporary_folders_in_memory, tmp_path, tmp_path_factory  # noqa: E402, F401 - fixtures
