"""Make the ONNX form of an encoder of queries from its torch model, and compare the two."""

from __future__ import annotations

import copy
import logging
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.cache import cache_folder
from mvindex.encoder.checkpoint.settings import first_line
from mvindex.encoder.onnx_cache import (
    HEAD,
    MODEL,
    TOKENIZER,
    WEIGHTS,
    FormState,
    OnnxForm,
    Refused,
    describe,
    find_form,
    new_form,
    refuse,
)
from mvindex.encoder.onnx_encoder import IDS, MASK, ROWS, STATES, VECTORS, OnnxEncoder
from mvindex.errors import StoreError
from mvindex.plugins import require

if TYPE_CHECKING:
    import torch

    from mvindex.encoder.transformer import TransformerEncoder

logger = logging.getLogger(__name__)

# The largest difference of an element of a query's vector, taken at unit length. Rounding in another order gives some
# 1e-7; a wrong mask, position or activation gives a hundredth.
TOLERANCE = 1e-5
_OPSET = 17
# What one ONNX file can hold, less room for its graph.
_MAX_WEIGHT_BYTES = 2_000_000_000
_PURPOSE = "the ONNX form of an encoder"
# Queries of several lengths, in scripts that tokenizers treat differently; the last one is repeated beyond the window.
_SAMPLES = (
    "",
    "a",
    "who?",
    "When did the oil crisis begin?",
    "Which of the two treaties, signed in 1648 at Osnabr\u00fcck and M\u00fcnster, ended the Eighty Years' War?",
    "\u0439\u043e\u0434 \u4f60\u597d \U0001f600 na\u00efve caf\u00e9 x\u00b2",
    "the cat sat on the mat. " * 4,
)
_LONG, _LONG_TOKENS = "the old house by the river was blue and new. ", 768


class _Inexportable(Exception):
    """The model has no form; the message says why."""


def needs_form(state: FormState) -> bool:
    """Return whether a form is to be made: there is none, or other versions than those of today refused it."""
    return state is None or (isinstance(state, Refused) and state.versions != _versions())


def make_form(encoder: TransformerEncoder) -> OnnxForm | Refused:
    """Make the form of the encoder's queries, unless it is there already, and return it; or why there can be none.

    Raises:
        ExtraMissing: When onnx or onnxruntime is not installed.
        StoreError: When the cache cannot be written.

    """
    require("onnx", "train", _PURPOSE)
    require("onnxruntime", "train", _PURPOSE)
    fingerprint = encoder.fingerprint
    try:
        with new_form(fingerprint) as folder:
            try:
                _export(encoder, folder)
                difference = _compare(encoder, folder)
                describe(folder, fingerprint, width=encoder.width, pad_id=encoder.pad_id, difference=difference)
            except _Inexportable as err:
                refuse(folder, fingerprint, Refused(str(err), _versions()))
        found = find_form(fingerprint)
    except OSError as err:
        raise StoreError(f"{err.filename or cache_folder()}: cannot be written: {err.strerror or err}") from err
    if found is None:
        raise StoreError(f"{cache_folder()}: the ONNX form of {encoder.checkpoint.source!r} vanished after it was made")
    return found


def _export(encoder: TransformerEncoder, folder: Path) -> None:
    """Write tokenizer, transformer and Dense modules into the folder."""
    import torch

    parts = encoder.query_parts
    size = sum(weight.numel() * weight.element_size() for weight in parts.model.parameters())
    if size > _MAX_WEIGHT_BYTES:
        raise _Inexportable(f"the model has {size:,} bytes of weights; one ONNX file holds {_MAX_WEIGHT_BYTES:,}")
    if (free := shutil.disk_usage(folder).free) < 2 * size:
        raise OSError(None, f"expected {2 * size:,} bytes of free disk, got {free:,}", str(folder))
    parts.tokenizer.save(str(folder / TOKENIZER))
    ids = torch.full((2, 7), encoder.pad_id, dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0  # no mask may be left out because it hides nothing
    lengths = {name: {0: "queries", 1: "tokens"} for name in (IDS, MASK, STATES)}
    raw = folder / "exported.onnx"
    _trace(_states_of(_written_out(parts.model)), {IDS: ids, MASK: mask}, STATES, lengths, raw)
    _optimise(raw, folder / MODEL, folder / WEIGHTS)
    if parts.head is not None:
        rows = torch.zeros((2, encoder.width))
        _trace(parts.head, {ROWS: rows}, VECTORS, {ROWS: {0: "queries"}, VECTORS: {0: "queries"}}, raw)
        _optimise(raw, folder / HEAD, None)
    raw.unlink()


def _written_out(model: Any) -> Any:
    """Return a copy on the CPU whose attention is written out: its graph has a quarter fewer operations.

    Each costs a microsecond a batch. The model itself may be in use.
    """
    copied = copy.deepcopy(model).cpu()
    try:
        copied.set_attn_implementation("eager")
    except (AttributeError, ValueError) as err:  # transformers before 4.53, or a model that cannot
        logger.debug("%s has no attention that is written out: %s", type(model).__name__, first_line(err))
    return copied


def _states_of(model: Any) -> torch.nn.Module:
    """Return a module of ids and mask whose one output is the model's last states."""
    import torch

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    return States().eval()


def _trace(
    module: torch.nn.Module,
    inputs: dict[str, torch.Tensor],
    output: str,
    lengths: dict[str, dict[int, str]],
    path: Path,
) -> None:
    """Write the module as an ONNX graph; lengths: the axes of inputs and output that differ from call to call."""
    import torch

    try:
        with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
            # Of tracing, which takes Python's branches as they are: the comparison shows whether they were right.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, tuple(inputs.values()), path, input_names=list(inputs), output_names=[output],
                dynamic_axes=lengths, opset_version=_OPSET, dynamo=False,
            )  # fmt: skip
    except OSError:
        raise
    except Exception as err:  # noqa: BLE001 - whatever a model's code and torch's exporter raise
        raise _Inexportable(f"torch cannot export {type(module).__name__}: {first_line(err)}") from err


def _optimise(graph: Path, path: Path, weights: Path | None) -> None:
    """Write the graph as ONNX Runtime optimises it for any processor; large weights go to a file of their own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    try:
        onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    except Exception as err:  # noqa: BLE001 - ONNX Runtime's exceptions have no common class
        raise _Inexportable(f"ONNX Runtime refuses the graph: {first_line(err)}") from err
    options.optimized_model_filepath = str(path)
    if weights is not None:
        settings = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{settings}_file_name", weights.name)
        options.add_session_config_entry(f"{settings}_min_size_in_bytes", "1024")
    try:
        onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    except Exception as err:  # noqa: BLE001 - as above; the graph is sound, so the disk is not
        raise OSError(None, first_line(err), str(path)) from err


def _compare(encoder: TransformerEncoder, folder: Path) -> float:
    """Return the largest difference of the two encoders' query vectors at unit length, one by one and in a batch."""
    head = (folder / HEAD).exists()
    form = OnnxForm(folder=folder, width=encoder.width, pad_id=encoder.pad_id, has_head=head, difference=0.0)
    found = OnnxEncoder(encoder.checkpoint, form)
    samples = _samples(encoder.checkpoint.settings.query_length)
    try:
        expected = encoder.encode_queries(samples)
        got = np.concatenate([found.encode_queries(samples), *(found.encode_queries([text]) for text in samples)])
    except Exception as err:  # noqa: BLE001 - whatever either runtime raises over a query
        raise _Inexportable(f"its vectors could not be compared: {first_line(err)}") from err
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    difference = float((np.abs(got - np.tile(expected, (2, 1))) / np.tile(norms, (2, 1))).max())
    if not difference <= TOLERANCE:
        raise _Inexportable(f"its vectors differ from torch's by {difference:.2g}; expected at most {TOLERANCE:g}")
    logger.debug("the ONNX form of %s differs from torch by %.2g", encoder.checkpoint.source, difference)
    return difference


def _samples(query_length: int) -> Sequence[str]:
    """Return queries of several lengths, one longer than a window (of the first 512 tokens of a very long one)."""
    words = min(2 * query_length, _LONG_TOKENS)
    return [*_SAMPLES, _LONG * (words // 11 + 1)]


def _versions() -> str:
    """Return what an export depends on besides the checkpoint."""
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "onnxruntime"))
