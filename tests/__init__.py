"""The tests are packages, so that their helpers are imported by full name; see tests/conftest.py."""
