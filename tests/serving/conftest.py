"""Make the helper modules of these tests and the shared ones importable; servers of these tests are forked."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

import serving_tools  # noqa: E402 - beside this file
from browsing import browser, quiet  # noqa: E402, F401 - fixtures
from forked_servers import ForkedServer  # noqa: E402 - beside this file

serving_tools.fork = ForkedServer
