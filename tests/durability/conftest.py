"""Folders of these tests are in memory: they write the same small indexes many times."""

from tests.memory_folders import temporary_folders_in_memory, tmp_path, tmp_path_factory  # noqa: F401 - fixtures
