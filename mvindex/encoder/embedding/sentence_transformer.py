"""A SentenceTransformer object as a model."""

from __future__ import annotations

import sys
from threading import Lock
from typing import Any

import numpy as np
import xxhash

from mvindex.errors import ConfigError
from mvindex.plugins import require

KIND = "sentence-transformer"
_MODULE = "sentence_transformers"
# Of each tensor so many numbers are hashed: enough to tell two trainings apart, in milliseconds for any model.
_HASHED_NUMBERS = 4096
_CHARS_PER_TOKEN = 4
_DEFAULT_TOKENS = 512


def is_sentence_transformer(value: object) -> bool:
    """Return whether the value is a SentenceTransformer, without importing the library."""
    library = sys.modules.get(_MODULE)
    return library is not None and isinstance(value, library.SentenceTransformer)


def open_sentence_transformer(source: str, device: str | None) -> SentenceTransformerEmbedder:
    """Load the model that an index recorded, from its directory or its name at the hub.

    Raises:
        ConfigError: When it cannot be loaded; the message says how to give it.

    """
    library = require(_MODULE, "sentence-transformers", f"the encoder {source!r}")
    try:
        return SentenceTransformerEmbedder(library.SentenceTransformer(source, device=device))
    except (OSError, ValueError) as err:
        reason = (str(err).strip().splitlines() or [type(err).__name__])[0]
        raise ConfigError(
            f"this index was made with the SentenceTransformer {source!r}, which cannot be loaded: {reason}. "
            "Give it: mvindex.open(path, encoder=SentenceTransformer(...))"
        ) from err


class SentenceTransformerEmbedder:
    """A SentenceTransformer: documents and queries by its own prompts."""

    kind = KIND
    embeds_alike = False

    def __init__(self, model: Any) -> None:
        """Take the model as it is: its device, number type and prompts are the caller's choice."""
        self._model = model
        # Tokenizers of one model are not for two threads at once.
        self._lock = Lock()
        self.source = _name_of(model)
        self.max_chars = _CHARS_PER_TOKEN * int(model.max_seq_length or _DEFAULT_TOKENS)
        self.identity = f"{KIND}:{self.source.rstrip('/').rsplit('/', 1)[-1]}:{_hash_of(model)}"

    def embed_documents(self, texts: list[str]) -> Any:
        """Return the model's vectors of texts of documents."""
        with self._lock:
            return self._model.encode_document(texts, show_progress_bar=False, convert_to_numpy=True)

    def embed_queries(self, texts: list[str]) -> Any:
        """Return the model's vectors of queries."""
        with self._lock:
            return self._model.encode_query(texts, show_progress_bar=False, convert_to_numpy=True)


def _name_of(model: Any) -> str:
    """Return the directory or hub name that the model was loaded from, else the name of its card or class."""
    card = getattr(model, "model_card_data", None)
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    for name in (getattr(card, "model_id", None), getattr(config, "_name_or_path", None)):
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def _hash_of(model: Any) -> str:
    """Return a hash of what changes a vector: a sample of all weights (as bfloat16), prompts, length and modules."""
    torch = require("torch", "train", "SentenceTransformer")
    digest = xxhash.xxh3_128()
    facts = (sorted(model.prompts.items()), model.max_seq_length, model.truncate_dim, [type(m).__name__ for m in model])
    digest.update(repr(facts).encode())
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        sample = flat[:: max(1, len(flat) // _HASHED_NUMBERS)].to("cpu", torch.float32)
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(np.ascontiguousarray(sample.to(torch.bfloat16).view(torch.int16).numpy()).data)
    return str(digest.hexdigest())
