"""Encoder directories: the only code that reads or writes one.

sources.py finds the directory, settings.py holds mvindex.json, reader.py checks the directory and reads it,
loading.py makes model and tokenizer of it.
"""

from mvindex.checkpoint.loading import load_model, load_tokenizer
from mvindex.checkpoint.reader import Checkpoint, read_checkpoint
from mvindex.checkpoint.settings import Family, Pooling, Settings, Similarity, write_settings

__all__ = [
    "Checkpoint",
    "Family",
    "Pooling",
    "Settings",
    "Similarity",
    "load_model",
    "load_tokenizer",
    "read_checkpoint",
    "write_settings",
]
