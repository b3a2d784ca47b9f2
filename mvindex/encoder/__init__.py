"""Encode documents as views, and a query as one vector.

function.py has the protocol, and takes a callable that makes the views itself. embedding/ makes views with any model of
one vector a text: a function, a SentenceTransformer, an embeddings endpoint. A checkpoint runs through text.py
(tokens), families/ (which tokens make which view), batches.py (what runs together), forward.py (states to rows),
transformer.py (the encoder). A new family is one function and an entry in the table of checkpoint/families.py,
or an entry point of another package. sentence_transformers.py writes a checkpoint for sentence-transformers.
"""

from mvindex.encoder.function import CallableEncoder, Encoder
from mvindex.encoder.registry import EncoderLike, encoder_from_spec, load_encoder, prepare_queries

__all__ = ["CallableEncoder", "Encoder", "EncoderLike", "encoder_from_spec", "load_encoder", "prepare_queries"]
