"""The papers' studies: rows and claims as data, running, measuring, judging, writing."""
