"""Load model and tokenizer of a checkpoint by transformers: quietly, from safetensors, without foreign code."""

from __future__ import annotations

import importlib.util
import inspect
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvindex.encoder.checkpoint.adapter import merge_adapter
from mvindex.encoder.checkpoint.dense import load_head
from mvindex.encoder.checkpoint.families import POLY
from mvindex.encoder.checkpoint.growth import check_normalizer, check_tokenizer_file
from mvindex.encoder.checkpoint.hub import E5, PACKAGED, check_packaged_weights
from mvindex.encoder.checkpoint.reader import ENCODER_HALVES, QUERY_FOLDER, VIEW_WEIGHTS, Checkpoint
from mvindex.encoder.checkpoint.settings import first_line, read_json_object
from mvindex.encoder.checkpoint.sizes import check_all_used, check_sizes
from mvindex.encoder.checkpoint.tensors import read_tensors
from mvindex.errors import CheckpointError, ExtraMissing
from mvindex.plugins import install_command, require

if TYPE_CHECKING:
    import tokenizers
    import torch

logger = logging.getLogger(__name__)

# New entries of the vocabulary (MVR section 3.2): the first stands for a question, the others for views 1 to k.
QUERY_VIEWER = "[VIE]"
DOCUMENT_VIEWER = "[VIE_{}]"


def check_can_load(checkpoint: Checkpoint) -> None:
    """Raise ExtraMissing where a package that loads the checkpoint is absent, without importing any: they are slow."""
    check_has_torch_form(checkpoint)
    for module in ("torch", "transformers", "safetensors"):
        if importlib.util.find_spec(module) is None:
            raise ExtraMissing(
                f"encoding texts by {checkpoint.source!r} needs the package {module!r}: {install_command('train')}"
            )
    if PACKAGED in (checkpoint.source, checkpoint.base and checkpoint.base.source):
        check_packaged_weights()


def check_has_torch_form(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError for a packaged encoder that only ONNX Runtime runs."""
    if E5 in (checkpoint.source, checkpoint.base and checkpoint.base.source):
        raise CheckpointError(
            f"the encoder {E5!r} runs in ONNX Runtime on the CPU: expected the families 'snippets', 'sentences', "
            "'single', 'first-k' or 'splits', and no other device, views' attentions or training. "
            f"An index whose scan uses a GPU takes it as open(path, device=..., encoder=load_encoder({E5!r}))"
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """The models of a checkpoint, in fp32 on the CPU, for inference.

    documents, queries: transformers without a pooler whose output is the last hidden state, one and the same unless
    the checkpoint's settings say `separate`; codes: (k, d) of the Poly-encoder, None in other families; head: what
    every view and question goes through after its pooling, None without.
    """

    documents: Any
    queries: Any
    codes: torch.Tensor | None
    head: torch.nn.Module | None = None


def load_parts(checkpoint: Checkpoint, tokenizer: tokenizers.Tokenizer) -> Parts:
    """Return the models of a checkpoint, an adapter's added to its base; the tokenizer is the checkpoint's own.

    Raises CheckpointError when the weights do not fill the architecture: they would be left random.
    """
    check_has_torch_form(checkpoint)
    settings, extra, ids = checkpoint.settings, _view_weights(checkpoint), viewer_ids(tokenizer)
    documents = _load_with_adapter(checkpoint, checkpoint.folder, ids, extra.get("viewers"))
    queries = documents
    if settings.separate:
        folder = checkpoint.folder / QUERY_FOLDER
        queries = _load_with_adapter(checkpoint, folder, ids, extra.get("query_viewers"))
    codes = None
    if settings.family == POLY:
        codes = _codes(checkpoint, extra.get("codes"), int(documents.config.hidden_size))
    return Parts(documents, queries, codes, load_head(checkpoint.dense, int(documents.config.hidden_size)))


def _codes(checkpoint: Checkpoint, codes: torch.Tensor | None, dim: int) -> torch.Tensor:
    """Return the first max_views codes, (k, dim) fp32."""
    expected = checkpoint.settings.max_views
    if codes is None or codes.ndim != 2 or len(codes) < expected or codes.shape[1] != dim:
        raise CheckpointError(
            f"{checkpoint.folder / VIEW_WEIGHTS}: codes of shape {None if codes is None else tuple(codes.shape)}; "
            f"expected {expected} rows of {dim}, one per view of the family 'poly' (max_views)"
        )
    return codes[:expected].float()


def viewer_ids(tokenizer: tokenizers.Tokenizer) -> list[int]:
    """Return the ids of the viewer tokens: [VIE] of questions, then [VIE_1], [VIE_2], ... (MVR section 3.2), if any."""
    ids: list[int] = []
    while (token_id := tokenizer.token_to_id(DOCUMENT_VIEWER.format(len(ids)) if ids else QUERY_VIEWER)) is not None:
        ids.append(token_id)
    return ids


def load_model(folder: Path) -> torch.nn.Module:
    """Return the transformer of a folder of full weights, as in Parts."""
    import torch

    transformers = require("transformers", "train", "encoding texts")
    require("safetensors", "train", "encoding texts")
    try:
        # What the weights lack, such as an unused pooler, is drawn at random: not from the caller's random numbers.
        with quiet(), torch.random.fork_rng(devices=[]):
            check_sizes(folder)
            half = ENCODER_HALVES.get(str(read_json_object(folder / "config.json").get("model_type")))
            model_class = transformers.AutoModel if half is None else getattr(transformers, half)
            model, report = model_class.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, output_loading_info=True
            )
    except CheckpointError:
        raise
    except Exception as err:  # noqa: BLE001 - transformers and torch raise whatever a wrong config leads them to
        raise CheckpointError(f"{folder}: the model cannot be loaded: {first_line(err)}") from err
    # Some checkpoints leave the pooler out, and it is not used here.
    missing = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
    if missing or report["mismatched_keys"]:
        raise CheckpointError(f"{folder}: the weights lack {', '.join(missing[:3]) or 'matching shapes'} of its config")
    check_all_used(folder, report["unexpected_keys"], is_half=half is not None)
    logger.debug("loaded %s from %s", type(model).__name__, folder)
    module: torch.nn.Module = _without_pooler(model).float().eval()
    return module


def _load_with_adapter(checkpoint: Checkpoint, folder: Path, ids: list[int], viewers: torch.Tensor | None) -> Any:
    if checkpoint.base is None:
        return load_model(folder)
    has_query_base = folder.name == QUERY_FOLDER and checkpoint.base.settings.separate
    model: Any = load_model(checkpoint.base.folder / QUERY_FOLDER if has_query_base else checkpoint.base.folder)
    if viewers is not None:
        if viewers.shape != (len(ids), model.get_input_embeddings().embedding_dim):
            raise CheckpointError(
                f"{checkpoint.folder / VIEW_WEIGHTS}: viewers of shape {tuple(viewers.shape)}; expected {len(ids)} "
                "rows, one per viewer token of the tokenizer, as wide as the base model"
            )
        _check_ids(checkpoint, ids, model.get_input_embeddings().num_embeddings)
        set_embeddings(model, ids, viewers)
    merge_adapter(model, folder)
    return model


def _check_ids(checkpoint: Checkpoint, ids: Sequence[int], size: int) -> None:
    """Raise CheckpointError where the viewer tokens are not the last ones: the table would grow to any size."""
    if max(ids, default=0) >= size + len(ids):
        raise CheckpointError(
            f"{checkpoint.tokenizer_folder}: a viewer token has the id {max(ids)}; the base model has {size} embeddings"
        )


def set_embeddings(model: Any, ids: Sequence[int], rows: torch.Tensor) -> None:
    """Set the embeddings, (len(ids), d), of these tokens; the table grows where needed."""
    import torch

    size = model.get_input_embeddings().num_embeddings
    if max(ids) >= size:
        # The rows beyond are drawn at random before they are set: the caller's random numbers stay as they are.
        with torch.random.fork_rng(devices=[]):
            model.resize_token_embeddings(max(ids) + 1, mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[torch.tensor(ids)] = rows.float()


def _view_weights(checkpoint: Checkpoint) -> dict[str, Any]:
    path = checkpoint.folder / VIEW_WEIGHTS
    return read_tensors(path) if path.exists() else {}


# One of these holds the words of a tokenizer.
VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)


def load_tokenizer(checkpoint: Checkpoint) -> tokenizers.Tokenizer:
    """Return the fast tokenizer, which neither cuts nor pads."""
    tokenizer: tokenizers.Tokenizer = load_wrapped_tokenizer(checkpoint).backend_tokenizer
    return tokenizer


def load_wrapped_tokenizer(checkpoint: Checkpoint) -> Any:
    """Return the tokenizer in its transformers wrapper, which can take new tokens and save itself."""
    transformers = require("transformers", "train", "encoding texts")
    folder = checkpoint.tokenizer_folder
    # Without any of these transformers makes up a vocabulary of five tokens, and every word becomes [UNK].
    if not any((folder / name).is_file() for name in VOCABULARIES):
        raise CheckpointError(f"{folder}: no tokenizer (none of {', '.join(VOCABULARIES)}); copy it from the model")
    check_tokenizer_file(folder)
    try:
        with quiet():
            loaded = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as err:  # noqa: BLE001 - a broken tokenizer.json raises the bare Exception of a Rust library
        raise CheckpointError(f"{folder}: the tokenizer cannot be loaded: {err}") from err
    if not loaded.is_fast:
        raise CheckpointError(f"{folder}: {type(loaded).__name__} has no fast version; save it with a tokenizer.json")
    tokenizer: tokenizers.Tokenizer = loaded.backend_tokenizer
    check_normalizer(tokenizer, str(folder))
    # tokenizer.json may hold both, as left over from training: texts would be cut, and padding be pooled.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if checkpoint.settings.lower_case:
        _lower_case(tokenizer)
    return loaded


def _lower_case(tokenizer: tokenizers.Tokenizer) -> None:
    """Make the tokenizer lower-case texts before anything else, as sentence-transformers does."""
    from tokenizers.normalizers import Lowercase, Sequence

    own = tokenizer.normalizer
    tokenizer.normalizer = Sequence([Lowercase()] if own is None else [Lowercase(), own])


def _without_pooler(model: Any) -> Any:
    # Such models skip an absent pooler; the argument exists in some architectures only, so it cannot just be passed.
    if "add_pooling_layer" in inspect.signature(type(model).__init__).parameters:
        model.pooler = None
    return model


@contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars and warnings of transformers in the block."""
    transformers = require("transformers", "train", "encoding texts")
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
