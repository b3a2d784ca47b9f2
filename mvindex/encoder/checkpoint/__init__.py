"""Read and write encoder directories: the only code that reads or writes one.

hub.py finds the directory, settings.py holds mvindex.json, reader.py checks the directory and reads it, load.py makes
models and tokenizer of it, and adds a LoRA adapter to its base.
"""

from mvindex.encoder.checkpoint.families import Family, parse_family
from mvindex.encoder.checkpoint.load import Parts, load_model, load_parts, load_tokenizer, viewer_ids
from mvindex.encoder.checkpoint.reader import Checkpoint, read_checkpoint
from mvindex.encoder.checkpoint.settings import Base, Pooling, Settings, Similarity, write_settings

__all__ = [
    "Base",
    "Checkpoint",
    "Family",
    "Parts",
    "Pooling",
    "Settings",
    "Similarity",
    "load_model",
    "load_parts",
    "load_tokenizer",
    "parse_family",
    "read_checkpoint",
    "viewer_ids",
    "write_settings",
]
