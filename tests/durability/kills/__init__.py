"""Kills of writers by SIGKILL, at every named step and at random moments."""
