"""Shared parts of bench/fuzz.py and tests/fuzz: targets, one a file, the makers of their inputs, and the watcher."""
