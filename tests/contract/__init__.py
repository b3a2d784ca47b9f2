"""Promises that every index, engine and process keeps."""
