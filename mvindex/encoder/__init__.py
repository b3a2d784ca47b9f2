"""Encoders: documents become views, a query becomes one vector.

base.py is the protocol, function.py makes an encoder of any callable. A checkpoint's way: text.py (tokens),
families.py (which tokens make which view), batches.py (what runs together), pooling.py (states to rows),
transformer.py (the encoder). A new family is one function in families.py, where its views are means of token states.
exporting.py writes a checkpoint for sentence-transformers.
"""

from mvindex.encoder.base import Encoder
from mvindex.encoder.function import CallableEncoder
from mvindex.encoder.registry import encoder_from_spec, load_encoder
from mvindex.encoder.sentence_transformers import Exported, export_encoder

__all__ = ["CallableEncoder", "Encoder", "Exported", "encoder_from_spec", "export_encoder", "load_encoder"]
