"""Encode documents as views, and a query as one vector.

base.py has the protocol, function.py makes an encoder of any callable. A checkpoint runs through text.py (tokens),
families/ (which tokens make which view), batches.py (what runs together), pooling.py (states to rows),
transformer.py (the encoder). A new family is one function and an entry in the table of mvindex/checkpoint/families.py,
or an entry point of another package. exporting.py writes a checkpoint for sentence-transformers.
"""

from mvindex.encoder.base import Encoder
from mvindex.encoder.function import CallableEncoder
from mvindex.encoder.registry import encoder_from_spec, load_encoder, prepare_queries

__all__ = ["CallableEncoder", "Encoder", "encoder_from_spec", "load_encoder", "prepare_queries"]
