"""The folder of the crash tests' helpers on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
