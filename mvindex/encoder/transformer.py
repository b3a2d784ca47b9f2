"""The encoder of a checkpoint: tokens to windows, windows through the model, states to views."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mvindex.encoder.arranged import Arranged, Inputs, ranges
from mvindex.encoder.arranging import Arranging
from mvindex.encoder.batches import Progress, TokenBatch, batches
from mvindex.encoder.checkpoint import Checkpoint, Parts, load_parts, load_tokenizer
from mvindex.encoder.checkpoint.settings import first_line
from mvindex.encoder.checkpoint_encoder import CheckpointEncoder
from mvindex.encoder.clusters import pad_tokens, token_views, unpad_views
from mvindex.encoder.device import batch_shape, choose_device, document_dtype, memory_of, on_device, torch_threads
from mvindex.encoder.forward import last_states, row_means
from mvindex.encoder.function import DEVICE_CHUNKS, SLICE_DOCUMENTS, slices
from mvindex.errors import EncoderError, Unsupported
from mvindex.records import CountCallback, Document, Floats, Ints, no_progress

if TYPE_CHECKING:
    import tokenizers
    import torch

logger = logging.getLogger(__name__)

# Tokens whose states are held at once while views are made of them: at 768 dimensions 100 MB.
_TOKENS_AT_ONCE = 32768
# What too little memory halves batches down to.
_LEAST_BATCH_TOKENS = 1024


class QueryParts(NamedTuple):
    """The parts that queries run through: the transformer, on its device; the Dense modules, if any; the tokenizer."""

    model: Any
    head: torch.nn.Module | None
    tokenizer: tokenizers.Tokenizer


class TransformerEncoder(CheckpointEncoder):
    """Encodes texts as unit vectors (or any norm, if the checkpoint says so) by a transformer, with torch.

    Documents are encoded in bf16 where the device has it, queries always in fp32: they are short, and their scores
    stay the same from machine to machine but for the last digits. Sums and norms are fp32. The same call gives the
    same bits again; another batch of documents may change the last digits of a vector.
    """

    def __init__(self, checkpoint: Checkpoint, device: str | None = None) -> None:
        chosen = choose_device(device)
        tokenizer = load_tokenizer(checkpoint)
        self._set_up(checkpoint, load_parts(checkpoint, tokenizer), tokenizer, chosen)

    @classmethod
    def of_parts(
        cls, checkpoint: Checkpoint, parts: Parts, tokenizer: tokenizers.Tokenizer, device: torch.device
    ) -> TransformerEncoder:
        """Return an encoder of models in memory, such as ones in training: they are used as they are."""
        encoder = cls.__new__(cls)
        encoder._set_up(checkpoint, parts, tokenizer, device)
        return encoder

    def _set_up(
        self, checkpoint: Checkpoint, parts: Parts, tokenizer: tokenizers.Tokenizer, device: torch.device
    ) -> None:
        settings, config = checkpoint.settings, parts.queries.config
        inputs = Inputs(settings, tokenizer, str(checkpoint.folder))
        super().__init__(checkpoint, inputs, int(config.hidden_size), int(config.pad_token_id or 0))
        self._device = device
        self.chunks_at_once = 1 if device.type == "cpu" else DEVICE_CHUNKS
        # Processes take a second to start.
        self._ahead_from = None if device.type == "cpu" else 2 * SLICE_DOCUMENTS
        self._shape = batch_shape(device, max(settings.document_length, settings.query_length))
        with memory_of(device, "the model"):
            self._query_model: Any = parts.queries.to(device)
            is_shared = parts.documents is parts.queries
            self._source_model: Any = self._query_model if is_shared else parts.documents.to(device)
            self._codes = None if parts.codes is None else parts.codes.to(device)
            self._head = None if parts.head is None else parts.head.to(device)
        self._tokenizer = tokenizer

    @property
    def query_parts(self) -> QueryParts:
        """Return what queries run through."""
        return QueryParts(self._query_model, self._head, self._tokenizer)

    def view_attentions(self, documents: Sequence[Document]) -> list[Floats | None]:
        """Return what each document's views attend to (see attention.view_attentions), in fp32.

        Unsupported for the families whose views are made of all tokens' states: none of them attends by itself.
        """
        from mvindex.encoder.forward import view_attentions

        family = self.checkpoint.settings.family
        if family.pools_tokens:
            raise Unsupported(
                f"views of the family {family.name!r} are made after the last layer and attend to nothing"
            )
        return view_attentions(self._source_model, self._inputs.arrange_documents(documents), self._shape, self.pad_id)

    @cached_property
    def _document_model(self) -> Any:
        dtype = document_dtype(self._device)
        if dtype == self._source_model.dtype:
            return self._source_model
        # The fp32 model stays where questions use it too.
        is_shared = self._source_model is self._query_model
        with memory_of(self._device, f"the model in {dtype}"):
            return (copy.deepcopy(self._source_model) if is_shared else self._source_model).to(dtype)

    def _encoded(self, arranged: Iterable[Arranged], on_progress: CountCallback) -> Iterator[tuple[Arranged, Floats]]:
        """Yield each slice with its views; on a GPU a slice is copied while the next one is computed."""
        waiting: tuple[Arranged, HostCopy] | None = None
        for one in arranged:
            latest = one, HostCopy(self._document_rows(one, on_progress))
            if waiting is not None:
                yield waiting[0], waiting[1].array()
            waiting = latest
        if waiting is not None:
            yield waiting[0], waiting[1].array()

    def _arranged(self, documents: Sequence[Document]) -> Iterator[Arranged]:
        """Yield the windows of each slice; of many documents for a GPU, other processes arrange the next ones."""
        if self._ahead_from is None or len(documents) < self._ahead_from:
            return super()._arranged(documents)
        return self._arranging.arrange(slices(documents))

    @cached_property
    def _arranging(self) -> Arranging:
        return Arranging(self._inputs)

    def _document_rows(self, arranged: Arranged, on_progress: CountCallback) -> torch.Tensor:
        """Return the views of a slice after the Dense modules, (r, dim) fp32 on the device."""
        make = self._token_views if self.checkpoint.settings.family.pools_tokens else self._means
        return self._project(make(arranged, self._document_model, on_progress))

    def _query_rows(self, arranged: Arranged) -> Floats:
        return HostCopy(self._project(self._means(arranged, self._query_model, no_progress))).array()

    def _means(self, arranged: Arranged, model: Any, on_progress: CountCallback) -> torch.Tensor:
        """Return the mean state of each row of the documents or queries, one after the other, fp32 on the device."""
        import torch

        progress = Progress(arranged, on_progress)
        while True:
            try:
                return self._means_at_once(arranged, model, progress)
            except torch.OutOfMemoryError as err:
                max_tokens = self._shape.max_tokens // 2
                if max_tokens < _LEAST_BATCH_TOKENS:
                    raise EncoderError(
                        f"{self._device}: too little memory for a batch of {self._shape.max_tokens} tokens; end other "
                        f"programs that use this GPU, give another --device, or --device cpu ({first_line(err)})"
                    ) from None
            self._shape = replace(self._shape, max_tokens=max_tokens)
            progress.restart()
            torch.cuda.empty_cache()
            logger.warning("%s is short of memory: batches of %d tokens from now on", self._device, max_tokens)

    def _means_at_once(self, arranged: Arranged, model: Any, progress: Progress) -> torch.Tensor:
        import torch

        def states() -> Iterator[tuple[TokenBatch, torch.Tensor]]:
            for batch in batches(arranged, self._shape, self.pad_id):
                yield batch, last_states(model, batch)
                progress.report(batch)

        with torch.inference_mode(), torch_threads().limited():
            return row_means(states(), int(arranged.num_rows.sum()), self.width, self._device)

    def _token_views(self, arranged: Arranged, model: Any, on_progress: CountCallback) -> torch.Tensor:
        """Return the views made of each document's token states, in the documents' order, fp32 on the device.

        Few documents are worked on at a time: their tokens' states are held at once.
        """
        import torch

        starts = arranged.view_starts
        rows = torch.zeros((int(starts[-1]), self.width), device=self._device)
        for places in _groups(np.argsort(-arranged.num_rows, kind="stable"), arranged.num_rows, _TOKENS_AT_ONCE):
            group = arranged.take(places)
            states = pad_tokens(self._means(group, model, no_progress), group.num_rows)
            with torch.inference_mode(), memory_of(self._device, f"the views of {len(places)} documents"):
                views = token_views(states, group, self.checkpoint.settings, self._codes)
                own = ranges(starts[places], group.num_views)
                rows.index_copy_(0, on_device(own, self._device), unpad_views(views, group.num_views))
            on_progress(len(places))
        return rows

    def _project(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows after the Dense modules, if any, in fp32."""
        import torch

        if self._head is None:
            return rows
        with torch.inference_mode():
            projected: torch.Tensor = self._head(rows)
        return projected


class HostCopy:
    """A copy of a tensor in memory, which a GPU makes while this process goes on."""

    def __init__(self, tensor: torch.Tensor) -> None:
        import torch

        self._copy, self._event = tensor, None
        if tensor.device.type != "cpu":
            self._copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._copy.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.current_stream(tensor.device).record_event()

    def array(self) -> Floats:
        """Return the values, when the device has come to them."""
        if self._event is not None:
            self._event.synchronize()
        return np.asarray(self._copy.numpy())


def _groups(order: Ints, num_tokens: Ints, max_tokens: int) -> Iterator[Ints]:
    """Yield consecutive places whose tokens, padded to the first one's, are at most max_tokens (or one place)."""
    begin = 0
    while begin < len(order):
        count = max(1, max_tokens // max(int(num_tokens[order[begin]]), 1))
        yield order[begin : begin + count]
        begin += count
