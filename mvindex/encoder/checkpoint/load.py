"""Load a model with its weights, checked against its sizes, and those of an adapter merged into them."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from mvindex.encoder.checkpoint.families import POLY
from mvindex.encoder.checkpoint.hub import E5, PACKAGED, check_packaged_weights
from mvindex.encoder.checkpoint.reader import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    ENCODER_HALVES,
    QUERY_FOLDER,
    VIEW_WEIGHTS,
    Checkpoint,
    weight_files,
)
from mvindex.encoder.checkpoint.settings import first_line, read_json_object
from mvindex.encoder.checkpoint.tensors import check_normalizer, check_tokenizer_file, load_head, read_tensors
from mvindex.errors import CheckpointError, ExtraMissing
from mvindex.plugins import install_command, require

if TYPE_CHECKING:
    import tokenizers
    import torch

logger = logging.getLogger(__name__)

_PREFIX = "base_model.model."
# What plain LoRA says of itself; any other key with a value stands for a variant, whose weights may not be
# W + scale * B A.
_PLAIN = frozenset(
    {"peft_type", "base_model_name_or_path", "r", "lora_alpha", "lora_dropout", "target_modules", "bias", "task_type",
     "inference_mode", "peft_version", "init_lora_weights", "revision", "use_rslora", "auto_mapping", "exclude_modules",
     "layers_to_transform", "layers_pattern", "megatron_core", "qalora_group_size"}
)  # fmt: skip
_PLAIN_STARTS = (True, False, "gaussian")
# No layer is as wide, and no weight of fp32 bears more.
_MAX_RANK, _MAX_ALPHA = 1 << 20, 1e30


def merge_adapter(model: torch.nn.Module, folder: Path) -> None:
    """Change the model's weights to W + scale * B A (LoRA, Hu et al. 2022, section 4.1).

    scale is alpha / r, or alpha / sqrt(r) where the adapter says use_rslora. Why not peft, which wrote the adapter:
    importing it takes 3 seconds, on every command that encodes. Raises CheckpointError for another kind of adapter, or
    one that does not fit the model.
    """
    config = read_json_object(folder / ADAPTER_CONFIG)
    scale, rank = _scale(config, folder), config["r"]
    tensors = read_tensors(folder / ADAPTER_WEIGHTS)
    parameters = dict(model.named_parameters())
    for name in sorted(tensors):
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removesuffix(".lora_A.weight")
        up, down = tensors.pop(f"{module}.lora_B.weight", None), tensors.pop(name)
        weight = parameters.get(f"{module.removeprefix(_PREFIX)}.weight")
        if up is None or weight is None or not _fits(weight, up, down, rank):
            raise CheckpointError(f"{folder / ADAPTER_WEIGHTS}: {module!r} does not fit the base model at r {rank}")
        weight.data += scale * (up.float() @ down.float())
    if tensors:
        raise CheckpointError(f"{folder / ADAPTER_WEIGHTS}: {sorted(tensors)[0]!r} is no weight of a LoRA adapter")


def _fits(weight: torch.Tensor, up: torch.Tensor, down: torch.Tensor, rank: int) -> bool:
    """Return whether B (up) and A (down) are matrices of that rank whose product has the weight's shape."""
    return weight.ndim == 2 and up.shape == (weight.shape[0], rank) and down.shape == (rank, weight.shape[1])


def _scale(config: dict[str, Any], folder: Path) -> float:
    rank, alpha = config.get("r"), config.get("lora_alpha")
    variants = sorted(name for name, value in config.items() if value and name not in _PLAIN)
    if config.get("init_lora_weights", True) not in _PLAIN_STARTS:
        variants.append(f"init_lora_weights {config['init_lora_weights']!r}")
    if config.get("peft_type") != "LORA" or variants or config.get("bias", "none") != "none":
        kind = config.get("peft_type") if not variants else f"LORA with {variants[0]}"
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG}: an adapter of kind {kind}; expected plain LORA without biases"
        )
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= _MAX_RANK or not _is_finite(alpha):
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG}: r is {rank!r:.40}, lora_alpha {alpha!r:.40}; "
            f"expected r from 1 to {_MAX_RANK:,} and a finite number"
        )
    return alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) <= _MAX_ALPHA


# So many numbers (64 MiB) more may be drawn in vain: transformers then says which tensors the weights lack.
_SPARE, _SPARE_MODULES = 1 << 24, 20
# Counts of modules, each of which has a tensor of its own at least.
_MODULES = re.compile(r"(layers?|groups?|experts?)$")
# The number of a layer among the parts of its tensors' names; attention alone has four tensors.
_LAYER_NUMBER, _LAYER_TENSORS = re.compile(r"\.[0-9]+\."), 4


def check_sizes(folder: Path) -> None:
    """Raise CheckpointError where config.json has more layers, or far more numbers, than the folder's weights.

    transformers draws at random what the weights lack, of whatever size, and only then says so.
    """
    import torch

    transformers = require("transformers", "train", "encoding texts")
    sizes = list(_tensor_sizes(folder))
    for name, count in _whole_numbers(read_json_object(folder / "config.json")):
        if _MODULES.search(name) and count > len(sizes) + _SPARE_MODULES:
            raise CheckpointError(
                f"{folder}: {name} is {count:.6g} in config.json; the weights have {len(sizes)} tensors"
            )
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    with torch.device("meta"):  # shapes without numbers
        if half := ENCODER_HALVES.get(config.model_type):
            model = getattr(transformers, half)(config)
        else:
            model = transformers.AutoModel.from_config(config, trust_remote_code=False)
    # Some checkpoints leave the pooler out.
    needed = sum(part.numel() for name, part in model.named_parameters() if not name.startswith("pooler."))
    if needed > sum(sizes) + _SPARE:
        raise CheckpointError(
            f"{folder}: config.json describes a model of {needed:,} numbers; the weights have {sum(sizes):,}"
        )


def check_all_used(folder: Path, unused: Iterable[str], *, is_half: bool = False) -> None:
    """Raise CheckpointError where the weights have whole layers that config.json does not name.

    unused: The names of the tensors that the model has no place for. Heads of other tasks may be among them: they have
    no numbered parts of _LAYER_TENSORS tensors. is_half: Whether only the encoder of an encoder-decoder is loaded.
    """
    found = Counter(
        name[: number.end() - 1]
        for name in unused
        if (number := _LAYER_NUMBER.search(name)) and not (is_half and name.startswith("decoder."))
    )
    layers = sorted(layer for layer, count in found.items() if count >= _LAYER_TENSORS)
    if layers:
        raise CheckpointError(
            f"{folder}: the weights have layers that config.json does not name: {', '.join(layers[:3])}; its number of "
            "layers is wrong"
        )


def _tensor_sizes(folder: Path) -> Iterator[int]:
    """Yield how many numbers each tensor of the weights has."""
    safetensors = require("safetensors", "train", "encoding texts")
    for path in weight_files(folder):
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no dictionary
                yield math.prod(file.get_slice(name).get_shape())


def _whole_numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield key and value of every whole number in the config and its parts."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _whole_numbers(value)
        elif isinstance(value, int):
            yield name, value


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
