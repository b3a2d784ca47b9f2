"""The encoder of a checkpoint whose queries run in ONNX Runtime, without torch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.encoder.base import QueryPrecision
from mvindex.encoder.batches import Batch, BatchShape, batches
from mvindex.encoder.checkpoint import Checkpoint
from mvindex.encoder.checkpoint.load import check_can_load
from mvindex.encoder.checkpoint_encoder import CheckpointEncoder
from mvindex.encoder.families import Arrangement
from mvindex.encoder.inputs import Inputs
from mvindex.encoder.onnx_cache import HEAD, INT8_MODEL, MODEL, TOKENIZER, OnnxForm
from mvindex.errors import ConfigError
from mvindex.kernels.threads import default_threads
from mvindex.plugins import require
from mvindex.records import CountCallback, Document, Floats, Views, no_progress

if TYPE_CHECKING:
    from mvindex.encoder.transformer import TransformerEncoder

logger = logging.getLogger(__name__)

# Names of the graphs' inputs and outputs.
IDS, MASK, STATES, ROWS, VECTORS = "ids", "mask", "states", "rows", "vectors"
# Queries of several lengths, in scripts that tokenizers treat differently.
SAMPLES = (
    "",
    "a",
    "who?",
    "When did the oil crisis begin?",
    "Which of the two treaties, signed in 1648 at Osnabr\u00fcck and M\u00fcnster, ended the Eighty Years' War?",
    "\u0439\u043e\u0434 \u4f60\u597d \U0001f600 na\u00efve caf\u00e9 x\u00b2",
    "the cat sat on the mat. " * 4,
)
# The least cosine of a sample query in int8 with itself in fp32; MiniLM has .9946.
LEAST_COSINE = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How queries of a precision are computed, measured with MiniLM.

    Attributes:
        shape: Of a batch: any shape, since ONNX Runtime compiles nothing for one, and no larger than pays. It does not
            depend on the number of threads, so that vectors do not either.
        session_threads: The most that share a batch. They wait for each other at each product.

    """

    shape: BatchShape
    session_threads: int


# A batch costs as 43 tokens in fp32 and as 6 in int8, whose products are too small to be shared.
_PLANS = {
    QueryPrecision.FP32: _Plan(shape=BatchShape(max_tokens=256, min_spared=0, least_spared=64), session_threads=4),
    QueryPrecision.INT8: _Plan(shape=BatchShape(max_tokens=96, min_spared=0, least_spared=16), session_threads=1),
}
_QUIET = 3  # errors only


class OnnxEncoder(CheckpointEncoder):
    """Encodes queries in ONNX Runtime on the CPU; documents by torch, which the first of them loads.

    The vectors of queries are those of TransformerEncoder but for their last digits; in int8, near them.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        form: OnnxForm,
        device: str | None = None,
        precision: QueryPrecision = QueryPrecision.FP32,
    ) -> None:
        """Open a form that find_form() found for the checkpoint.

        Args:
            checkpoint: The checkpoint.
            form: Its form.
            device: Where documents are encoded.
            precision: Of the products of queries; ConfigError for INT8 of a form without it, or far from fp32.

        """
        tokenizers = require("tokenizers", "encode", "encoding texts")
        tokenizer = tokenizers.Tokenizer.from_file(str(form.folder / TOKENIZER))
        inputs = Inputs(checkpoint.settings, tokenizer, str(checkpoint.folder))
        super().__init__(checkpoint, inputs, form.width, form.pad_id)
        self.form, self.precision = form, precision
        is_int8 = precision is QueryPrecision.INT8
        if is_int8 and not form.has_int8:
            raise ConfigError(f"{checkpoint.source}: its graph has no products that could be computed in int8")
        self._plan = _PLANS[precision]
        self._session_threads = min(default_threads(), self._plan.session_threads)
        self._model = open_session(form.folder / (INT8_MODEL if is_int8 else MODEL), self._session_threads)
        self._head = open_session(form.folder / HEAD, self._session_threads) if form.has_head else None
        self._device, self._lock = device, Lock()
        self._transformer: TransformerEncoder | None = None
        if is_int8:
            self._check_cosine()

    def _check_cosine(self) -> None:
        """Compare sample queries with those in fp32, on this processor; ConfigError where they are too far from them.

        Processors without products of bytes for neural networks (VNNI) may cut off sums of two products.
        """
        exact = OnnxEncoder(self.checkpoint, self.form).encode_queries(SAMPLES)
        rounded = self.encode_queries(SAMPLES)
        norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(rounded, axis=1)
        cosine = float(((exact * rounded).sum(axis=1) / norms).min())
        logger.info("queries are encoded in int8, at a cosine of at least %.4f with fp32", cosine)
        if not cosine >= LEAST_COSINE:
            raise ConfigError(
                f"{self.checkpoint.source}: its queries cannot be encoded in int8 here: a sample has a cosine of "
                f"{cosine:.4f} with its vector in fp32, expected at least {LEAST_COSINE}"
            )

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return the views of the documents; see TransformerEncoder. ExtraMissing where torch is not installed."""
        return self._loaded().encode_documents(documents, on_progress)

    def view_attentions(self, documents: Sequence[Document]) -> list[Floats | None]:
        """Return what each document's views attend to; see TransformerEncoder."""
        return self._loaded().view_attentions(documents)

    def query_batches(self, texts: Sequence[str]) -> Iterator[Batch]:
        """Yield the batches in which these queries would be encoded."""
        windows = [window for one in self._inputs.arrange_queries(texts) for window in one.windows]
        return batches(windows, np.zeros(len(windows), dtype=np.int64), self._plan.shape, self.pad_id)

    def _query_rows(self, arranged: Sequence[Arrangement]) -> Floats:
        shape = self._plan.shape
        num_tokens = sum(len(window.ids) for one in arranged for window in one.windows)
        # The session's other threads are the same ones for all batches.
        num_threads = min(default_threads() - self._session_threads + 1, -(-num_tokens // shape.max_tokens))
        rows = self._pooled(arranged, self._states, shape, no_progress, num_threads)
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
