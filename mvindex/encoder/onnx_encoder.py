"""The encoder of a checkpoint whose queries run in ONNX Runtime, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.encoder.batches import Batch, BatchShape
from mvindex.encoder.checkpoint import Checkpoint
from mvindex.encoder.checkpoint.load import check_can_load
from mvindex.encoder.checkpoint_encoder import CheckpointEncoder
from mvindex.encoder.families import Arrangement
from mvindex.encoder.inputs import Inputs
from mvindex.encoder.onnx_cache import HEAD, MODEL, TOKENIZER, OnnxForm
from mvindex.kernels.threads import default_threads
from mvindex.plugins import require
from mvindex.records import CountCallback, Document, Floats, Views, no_progress

if TYPE_CHECKING:
    from mvindex.encoder.transformer import TransformerEncoder

# Names of the graphs' inputs and outputs.
IDS, MASK, STATES, ROWS, VECTORS = "ids", "mask", "states", "rows", "vectors"
# Of a batch of queries, measured with MiniLM: any shape, since ONNX Runtime compiles nothing for one, and no larger
# than pays: a batch costs as 43 tokens. It does not depend on the number of threads, so that vectors do not either.
_SHAPE = BatchShape(max_tokens=256, min_spared=0, least_spared=64)
# The most threads that share a batch: they wait for each other at each product.
_SESSION_THREADS = 4
_QUIET = 3  # errors only


class OnnxEncoder(CheckpointEncoder):
    """Encodes queries in ONNX Runtime on the CPU; documents by torch, which the first of them loads.

    The vectors of queries are those of TransformerEncoder but for their last digits.
    """

    def __init__(self, checkpoint: Checkpoint, form: OnnxForm, device: str | None = None) -> None:
        """Open a form that find_form() found for the checkpoint; device: where documents are encoded."""
        tokenizers = require("tokenizers", "encode", "encoding texts")
        tokenizer = tokenizers.Tokenizer.from_file(str(form.folder / TOKENIZER))
        inputs = Inputs(checkpoint.settings, tokenizer, str(checkpoint.folder))
        super().__init__(checkpoint, inputs, form.width, form.pad_id)
        self.form = form
        self._session_threads = min(default_threads(), _SESSION_THREADS)
        self._model = open_session(form.folder / MODEL, self._session_threads)
        self._head = open_session(form.folder / HEAD, self._session_threads) if form.has_head else None
        self._device, self._lock = device, Lock()
        self._transformer: TransformerEncoder | None = None

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return the views of the documents; see TransformerEncoder. ExtraMissing where torch is not installed."""
        return self._loaded().encode_documents(documents, on_progress)

    def view_attentions(self, documents: Sequence[Document]) -> list[Floats | None]:
        """Return what each document's views attend to; see TransformerEncoder."""
        return self._loaded().view_attentions(documents)

    def _query_rows(self, arranged: Sequence[Arrangement]) -> Floats:
        num_tokens = sum(len(window.ids) for one in arranged for window in one.windows)
        # The session's other threads are the same ones for all batches.
        num_threads = min(default_threads() - self._session_threads + 1, -(-num_tokens // _SHAPE.max_tokens))
        rows = self._pooled(arranged, self._states, _SHAPE, no_progress, num_threads)
        return rows if self._head is None else np.asarray(self._head.run([VECTORS], {ROWS: rows})[0])

    def _states(self, batch: Batch) -> Floats:
        return np.asarray(self._model.run([STATES], {IDS: batch.ids, MASK: batch.mask})[0])

    def _loaded(self) -> TransformerEncoder:
        with self._lock:
            if self._transformer is None:
                check_can_load("encode")
                from mvindex.encoder.transformer import TransformerEncoder

                self._transformer = TransformerEncoder(self.checkpoint, self._device)
            return self._transformer


def open_session(path: Path, threads: int = 1) -> Any:
    """Return a session of an optimised graph, on the CPU; threads: that share each product."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _QUIET
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    # Threads that wait leave the core to others; shapes differ from query to query, so that no plan is worth keeping.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_mem_pattern = False
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
