"""Folders of these tests are in memory; helpers of the model check with assert."""

import pytest

pytest.register_assert_rewrite("tests.contract.model")

from tests.memory_folders import temporary_folders_in_memory, tmp_path, tmp_path_factory  # noqa: E402, F401 - fixtures
