"""Evaluation: questions and judgements, answer matching, metrics and run files."""
