"""Model and tokenizer of a checkpoint, made by transformers: quietly, from local safetensors, without foreign code."""

from __future__ import annotations

import importlib.util
import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mvindex.checkpoint.reader import Checkpoint
from mvindex.errors import CheckpointError, ExtraMissing
from mvindex.extras import require

if TYPE_CHECKING:
    import tokenizers
    import torch

logger = logging.getLogger(__name__)


def check_can_load(extra: str) -> None:
    """Nothing; ExtraMissing naming the extra when a needed package is absent. Imports none of them: they are slow."""
    for module in ("torch", "transformers", "safetensors"):
        if importlib.util.find_spec(module) is None:
            raise ExtraMissing(f"encoding texts needs the package {module!r}: pip install 'mvindex[{extra}]'")


def load_model(checkpoint: Checkpoint) -> torch.nn.Module:
    """The transformer in fp32 on the CPU, for inference, without a pooler; its output is the last hidden state.

    Raises CheckpointError when the weights do not fill the architecture: they would be left random.
    """
    transformers = require("transformers", "encode", "encoding texts")
    safetensors = require("safetensors", "encode", "encoding texts")
    folder = checkpoint.folder
    try:
        with _quiet(transformers):
            model, report = transformers.AutoModel.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, output_loading_info=True
            )
    except (OSError, ValueError, RuntimeError, LookupError, ImportError, safetensors.SafetensorError) as err:
        raise CheckpointError(f"{folder}: the model cannot be loaded: {err}") from err
    # Some checkpoints leave the pooler out, and it is not used here.
    missing = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
    if missing or report["mismatched_keys"]:
        raise CheckpointError(f"{folder}: the weights lack {', '.join(missing[:3]) or 'matching shapes'} of its config")
    logger.debug("loaded %s from %s", type(model).__name__, folder)
    module: torch.nn.Module = _without_pooler(model).float().eval()
    return module


_VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)


def load_tokenizer(checkpoint: Checkpoint) -> tokenizers.Tokenizer:
    """The fast tokenizer, which neither cuts nor pads."""
    transformers = require("transformers", "encode", "encoding texts")
    folder = checkpoint.folder
    # Without any of these transformers makes up a vocabulary of five tokens, and every word becomes [UNK].
    if not any((folder / name).is_file() for name in _VOCABULARIES):
        raise CheckpointError(f"{folder}: no tokenizer (none of {', '.join(_VOCABULARIES)}); copy it from the model")
    try:
        with _quiet(transformers):
            loaded = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as err:  # noqa: BLE001 - a broken tokenizer.json raises the bare Exception of a Rust library
        raise CheckpointError(f"{folder}: the tokenizer cannot be loaded: {err}") from err
    if not loaded.is_fast:
        raise CheckpointError(f"{folder}: {type(loaded).__name__} has no fast version; save it with a tokenizer.json")
    tokenizer: tokenizers.Tokenizer = loaded.backend_tokenizer
    # tokenizer.json may hold both, as left over from training: texts would be cut, and padding be pooled.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _without_pooler(model: Any) -> Any:
    # Such models skip an absent pooler; the argument exists in some architectures only, so it cannot just be passed.
    if "add_pooling_layer" in inspect.signature(type(model).__init__).parameters:
        model.pooler = None
    return model


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars or warnings of transformers on stderr; its settings are as before afterwards."""
    settings = transformers.utils.logging
    verbosity, had_progress_bar = settings.get_verbosity(), settings.is_progress_bar_enabled()
    settings.set_verbosity_error()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        settings.set_verbosity(verbosity)
        if had_progress_bar:
            settings.enable_progress_bar()
