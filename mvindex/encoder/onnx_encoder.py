"""The encoder of a checkpoint that runs in ONNX Runtime, without torch: queries, and of light forms documents too."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.encoder.arranged import Arranged, Inputs
from mvindex.encoder.batches import BatchShape, Progress, TokenBatch, batches
from mvindex.encoder.checkpoint import Checkpoint
from mvindex.encoder.checkpoint.families import BUILT_IN
from mvindex.encoder.checkpoint.load import check_can_load
from mvindex.encoder.checkpoint_encoder import CheckpointEncoder
from mvindex.encoder.device import has_driver
from mvindex.encoder.forward import RowMeans
from mvindex.encoder.function import DEVICE_CHUNKS
from mvindex.encoder.onnx_cache import HEAD, MODEL, TOKENIZER, OnnxForm
from mvindex.encoder.unigram import Unigram
from mvindex.kernels.threads import default_threads, map_in_threads
from mvindex.records import CountCallback, Document, Floats, no_progress

if TYPE_CHECKING:
    import tokenizers

    from mvindex.encoder.transformer import TransformerEncoder

# Names of the graphs' inputs and outputs.
IDS, WORDS, MASK, STATES, ROWS, VECTORS = "ids", "words", "mask", "states", "rows", "vectors"
# Of a batch of queries, measured with MiniLM: any shape, since ONNX Runtime compiles nothing for one, and no larger
# than pays: a batch costs as 43 tokens. It does not depend on the number of threads, so that vectors do not either.
_SHAPE = BatchShape(max_tokens=256, min_spared=0, least_spared=64)
# Of a batch of documents, measured with a light form: larger ones leave the caches.
_DOCUMENT_SHAPE = BatchShape(max_tokens=1024, min_spared=1 / 16, least_spared=64)
# The most threads that share a batch: they wait for each other at each product.
_SESSION_THREADS = 4
_QUIET = 3  # errors only


class OnnxEncoder(CheckpointEncoder):
    """Encodes queries in ONNX Runtime on the CPU. Documents too by a light form, else by torch, which is loaded then.

    The vectors of queries are those of TransformerEncoder but for their last digits; those of a light form agree with
    torch's in their rankings. A text's vectors do not depend on the texts beside it, nor on the number of threads.
    Where torch finds a GPU, and no device is given, it encodes the documents of light forms as well.
    """

    def __init__(self, checkpoint: Checkpoint, form: OnnxForm, device: str | None = None) -> None:
        """Open a form that find_form() found for the checkpoint; device: where documents are encoded."""
        inputs = Inputs(checkpoint.settings, _tokenizer(form), str(checkpoint.folder))
        super().__init__(checkpoint, inputs, form.width, form.pad_id)
        self.form = form
        # Batches of a light form are shared out instead.
        self._session_threads = 1 if form.is_packaged else min(default_threads(), _SESSION_THREADS)
        self._model = open_session(form.folder / MODEL, self._session_threads)
        self._head = open_session(form.folder / HEAD, self._session_threads) if form.has_head else None
        self._device, self._lock = device if form.words is None else "cpu", Lock()
        self._transformer: TransformerEncoder | None = None

    @property
    def chunks_at_once(self) -> int:
        """Return how many chunks an ingest commits at once: more where a GPU encodes documents."""
        return DEVICE_CHUNKS if _gpu_encodes(self._device) else 1

    def view_attentions(self, documents: Sequence[Document]) -> list[Floats | None]:
        """Return what each document's views attend to; see TransformerEncoder."""
        return self._loaded().view_attentions(documents)

    def _arranged(self, documents: Sequence[Document]) -> Iterator[Arranged]:
        return self._loaded()._arranged(documents) if self._leaves_documents() else super()._arranged(documents)

    def _encoded(self, arranged: Iterable[Arranged], on_progress: CountCallback) -> Iterator[tuple[Arranged, Floats]]:
        """Yield each slice with its views; ExtraMissing where they need torch, and it is not installed."""
        if self._leaves_documents():
            yield from self._loaded()._encoded(arranged, on_progress)
            return
        for one in arranged:
            yield one, self._means(one, _DOCUMENT_SHAPE, default_threads(), on_progress)

    def _query_rows(self, arranged: Arranged) -> Floats:
        # The session's other threads are the same ones for all batches.
        num_threads = min(default_threads() - self._session_threads + 1, -(-len(arranged.ids) // _SHAPE.max_tokens))
        rows = self._means(arranged, _SHAPE, num_threads, no_progress)
        return rows if self._head is None else np.asarray(self._head.run([VECTORS], {ROWS: rows})[0])

    def _means(self, arranged: Arranged, shape: BatchShape, num_threads: int, on_progress: CountCallback) -> Floats:
        """Return the mean state of each row of the documents or queries, one after the other, float32."""
        means, progress = RowMeans(int(arranged.num_rows.sum()), self.width), Progress(arranged, on_progress)
        made = batches(arranged, shape, self.pad_id)
        for batch, states in map_in_threads(lambda batch: (batch, self._states(batch)), made, num_threads):
            means.add(batch, states)
            progress.report(batch)
        return means.means()

    def _states(self, batch: TokenBatch) -> Floats:
        words = self.form.words
        inputs = {IDS: batch.ids} if words is None else {WORDS: words.embeddings(batch.ids)}
        return np.asarray(self._model.run([STATES], inputs | {MASK: batch.mask})[0])

    def _leaves_documents(self) -> bool:
        """Return whether torch encodes documents: on a GPU, or where the graph cannot (positions, clusters)."""
        family = self.checkpoint.settings.family
        needs_torch = not self.form.is_packaged or family.pools_tokens or family not in BUILT_IN
        return needs_torch or _gpu_encodes(self._device)

    def _loaded(self) -> TransformerEncoder:
        with self._lock:
            if self._transformer is None:
                check_can_load(self.checkpoint)
                from mvindex.encoder.transformer import TransformerEncoder

                self._transformer = TransformerEncoder(self.checkpoint, self._device)
            return self._transformer


def _tokenizer(form: OnnxForm) -> tokenizers.Tokenizer | Unigram:
    if form.words is not None:
        return form.words.tokenizer
    # Imported late, as onnxruntime is: a program that only reads an index's settings needs neither.
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(form.folder / TOKENIZER))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _gpu_encodes(device: str | None) -> bool:
    """Return whether documents are for a GPU that torch finds; torch is loaded only where there is a driver."""
    if device is not None or not has_driver() or importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


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
