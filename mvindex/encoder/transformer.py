"""The encoder of a checkpoint: tokens to windows, windows through the model, states to views."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mvindex.encoder.batches import Batch
from mvindex.encoder.checkpoint import Checkpoint, Parts, load_parts, load_tokenizer
from mvindex.encoder.checkpoint_encoder import CheckpointEncoder
from mvindex.encoder.clusters import pad_tokens, token_views
from mvindex.encoder.device import batch_shape, choose_device, document_dtype, torch_threads
from mvindex.encoder.families import Arrangement
from mvindex.encoder.forward import last_states
from mvindex.encoder.inputs import Inputs
from mvindex.errors import Unsupported
from mvindex.records import CountCallback, Document, Floats, Ints, no_progress

if TYPE_CHECKING:
    import tokenizers
    import torch

# Tokens whose states are held at once while views are made of them: at 768 dimensions 100 MB.
_TOKENS_AT_ONCE = 32768


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
        self._shape = batch_shape(device, max(settings.document_length, settings.query_length))
        self._query_model: Any = parts.queries.to(device)
        self._source_model: Any = self._query_model if parts.documents is parts.queries else parts.documents.to(device)
        self._codes = None if parts.codes is None else parts.codes.to(device)
        self._head, self._tokenizer = parts.head, tokenizer

    @property
    def query_parts(self) -> QueryParts:
        """Return what queries run through."""
        return QueryParts(self._query_model, self._head, self._tokenizer)

    def view_attentions(self, documents: Sequence[Document]) -> list[Floats | None]:
        """Return what each document's views attend to (see attention.view_attentions), in fp32.

        Unsupported for the families whose views are made of all tokens' states: none of them attends by itself.
        """
        from mvindex.encoder.attention import view_attentions

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
        return (copy.deepcopy(self._source_model) if is_shared else self._source_model).to(dtype)

    def _document_rows(self, arranged: Sequence[Arrangement], on_progress: CountCallback) -> Floats:
        encode = self._encode_tokens if self.checkpoint.settings.family.pools_tokens else self._encode
        return self._project(encode(arranged, self._document_model, on_progress))

    def _query_rows(self, arranged: Sequence[Arrangement]) -> Floats:
        return self._project(self._encode(arranged, self._query_model, no_progress))

    def _encode(self, arranged: Sequence[Arrangement], model: Any, on_progress: CountCallback) -> Floats:
        """Return the mean state of each row of the documents or queries, one after the other, float32."""
        return self._pooled(arranged, lambda batch: self._states(batch, model), self._shape, on_progress)

    def _encode_tokens(self, arranged: Sequence[Arrangement], model: Any, on_progress: CountCallback) -> Floats:
        """Return the views made of each document's token states, in the documents' order, float32.

        Few documents are worked on at a time: their tokens' states are held at once.
        """
        starts = np.cumsum([0, *(len(one.spans) for one in arranged)], dtype=np.int64)
        rows = np.zeros((int(starts[-1]), self.width), dtype=np.float32)
        order = np.argsort([-one.num_rows for one in arranged], kind="stable")
        for places in _groups(order, np.array([one.num_rows for one in arranged]), _TOKENS_AT_ONCE):
            group = [arranged[place] for place in places]
            views = self._token_views(group, model)
            for place, one, its_views in zip(places, group, views, strict=True):
                rows[starts[place] : starts[place + 1]] = its_views[: len(one.spans)]
            on_progress(len(places))
        return rows

    def _token_views(self, group: Sequence[Arrangement], model: Any) -> Floats:
        """Return the views of documents of a family that pools tokens, (n, k, dim), from the states of their tokens."""
        import torch

        rows = torch.from_numpy(self._encode(group, model, no_progress))
        states, _ = pad_tokens(rows, [one.num_rows for one in group])
        with torch.inference_mode():
            views = token_views(states.to(self._device), group, self.checkpoint.settings, self._codes)
        return np.asarray(views.cpu().numpy())

    def _states(self, batch: Batch, model: Any) -> torch.Tensor:
        import torch

        with torch.inference_mode(), torch_threads().limited():
            return last_states(model, batch)

    def _project(self, rows: Floats) -> Floats:
        """Return the rows after the Dense modules, if any, in fp32 on the CPU, where they cost next to nothing."""
        import torch

        if self._head is None:
            return rows
        with torch.inference_mode():
            return np.asarray(self._head(torch.from_numpy(rows)).numpy())


def _groups(order: Ints, num_tokens: Ints, max_tokens: int) -> Iterator[Ints]:
    """Yield consecutive places whose tokens, padded to the first one's, are at most max_tokens (or one place)."""
    begin = 0
    while begin < len(order):
        count = max(1, max_tokens // max(int(num_tokens[order[begin]]), 1))
        yield order[begin : begin + count]
        begin += count
