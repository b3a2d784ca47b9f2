"""Rules of style that no linter knows."""
