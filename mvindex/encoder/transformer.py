"""The encoder of a checkpoint: tokens to windows, windows through the model, states to views."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.checkpoint import Checkpoint, load_model, load_tokenizer
from mvindex.encoder.base import OnProgress
from mvindex.encoder.batches import Batch, batches
from mvindex.encoder.device import batch_shape, choose_device, document_dtype
from mvindex.encoder.families import FAMILIES, Arrangement, Frame, arrange_single
from mvindex.encoder.pooling import RowMeans
from mvindex.encoder.text import TextTokenizer
from mvindex.errors import CheckpointError, EncoderError
from mvindex.records import Document, Floats, Ints, Views

if TYPE_CHECKING:
    import torch


class TransformerEncoder:
    """Texts to unit vectors (or any norm, if the checkpoint says so) by a transformer.

    Documents are encoded in bf16 where the device has it, queries always in fp32: they are short, and their scores
    stay the same from machine to machine but for the last digits. Sums and norms are fp32. The same call gives the
    same bits again; another batch of documents may change the last digits of a vector.
    """

    def __init__(self, checkpoint: Checkpoint, device: str | None = None) -> None:
        self._device = choose_device(device)
        self._checkpoint = checkpoint
        settings = checkpoint.settings
        tokenizer = load_tokenizer(checkpoint)
        self._documents = TextTokenizer(tokenizer, settings.document_prompt)
        self._queries = TextTokenizer(tokenizer, settings.query_prompt)
        self._document_frame = _frame(checkpoint, self._documents, settings.document_length)
        self._query_frame = _frame(checkpoint, self._queries, settings.query_length)
        self._shape = batch_shape(self._device, max(settings.document_length, settings.query_length))
        self._query_model: Any = load_model(checkpoint).to(self._device)

    @property
    def dim(self) -> int:
        """Dimensions of every vector."""
        return int(self._query_model.config.hidden_size)

    @property
    def max_views(self) -> int | None:
        """The most views a document gets."""
        return self._checkpoint.settings.max_views

    @property
    def fingerprint(self) -> str:
        """Family, number of views, and a hash of all that changes a vector but device and floating-point type."""
        return self._checkpoint.fingerprint

    @property
    def spec(self) -> dict[str, Any]:
        """What an index keeps to open the encoder again."""
        settings = self._checkpoint.settings
        return {
            "kind": "checkpoint",
            "source": self._checkpoint.source,
            "family": settings.family.value,
            "max_views": settings.max_views,
            "fingerprint": self.fingerprint,
            "dim": self.dim,
            "similarity": settings.similarity.value,
            "temperature": settings.temperature,
        }

    def encode_documents(self, documents: Sequence[Document], on_progress: OnProgress | None = None) -> Views:
        """The views of the documents; a text longer than the window takes several, cut between sentences.

        A document without text is its title (span -1, -1), one without any token its special tokens: one view each.
        """
        arrange = FAMILIES[self._checkpoint.settings.family]
        tokenized = self._documents.tokenize_documents(documents)
        arranged = [arrange(text, self._document_frame) for text in tokenized]
        starts = np.cumsum([0, *(len(one.spans) for one in arranged)], dtype=np.int64)
        rows = self._encode(arranged, starts, self._document_model, on_progress or _ignore)
        self._finish(rows, lambda row: _owner(documents, starts, row))
        spans = np.array([span for one in arranged for span in one.spans], dtype=np.int64).reshape(-1, 2)
        return Views(rows, starts, spans)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """One vector per text, (q, dim) float32: the mean over its tokens (or CLS), always in fp32.

        A query longer than the window is covered by several: its vector is the mean over all of them.
        """
        arranged = [arrange_single(text, self._query_frame) for text in self._queries.tokenize_queries(texts)]
        starts = np.arange(len(arranged) + 1, dtype=np.int64)
        rows = self._encode(arranged, starts, self._query_model, _ignore)
        self._finish(rows, lambda row: f"query {row + 1}")
        return rows

    @cached_property
    def _document_model(self) -> Any:
        dtype = document_dtype(self._device)
        if dtype == self._query_model.dtype:
            return self._query_model
        return copy.deepcopy(self._query_model).to(dtype)

    def _encode(self, arranged: Sequence[Arrangement], starts: Ints, model: Any, on_progress: OnProgress) -> Floats:
        """The mean state of each row, (starts[-1], dim) float32."""
        windows = [window for one in arranged for window in one.windows]
        num_windows = np.array([len(one.windows) for one in arranged], dtype=np.int64)
        owner = np.repeat(np.arange(len(arranged)), num_windows)
        means = RowMeans(int(starts[-1]), self.dim)
        for batch in batches(windows, starts[owner], self._shape, self._pad_id):
            means.add(batch, self._states(batch, model))
            on_progress(_count_finished(num_windows, owner[batch.places]))
        return means.means()

    def _states(self, batch: Batch, model: Any) -> torch.Tensor:
        """The last hidden states, (b, t, dim)."""
        import torch

        ids, mask = (torch.from_numpy(array).to(self._device) for array in (batch.ids, batch.mask))
        with torch.inference_mode():
            states: torch.Tensor = model(input_ids=ids, attention_mask=mask).last_hidden_state
        return states

    @property
    def _pad_id(self) -> int:
        return int(self._query_model.config.pad_token_id or 0)

    def _finish(self, rows: Floats, name_of_row: Callable[[int], str]) -> None:
        """Nothing; the rows are finite and, unless the checkpoint says otherwise, of unit length afterwards."""
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        bad = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
        if len(bad):
            raise EncoderError(f"{name_of_row(int(bad[0]))}: the model gave a vector of norm {norms[bad[0], 0]}")
        if self._checkpoint.settings.normalise:
            rows /= norms


def _frame(checkpoint: Checkpoint, tokenizer: TextTokenizer, length: int) -> Frame:
    settings = checkpoint.settings
    room = length - len(tokenizer.head) - len(tokenizer.tail)
    if room < 1 or tokenizer.prompt_tokens > room // 2:
        raise CheckpointError(
            f"{checkpoint.folder}: a window of {length} tokens is too short for its special tokens "
            f"and a prompt of {tokenizer.prompt_tokens}; at most half of it may be prompt"
        )
    return Frame(tokenizer.head, tokenizer.tail, room, tokenizer.prompt_tokens, settings.pooling, settings.max_views)


def _count_finished(windows_left: Ints, owners: Ints) -> int:
    """How many documents have no window left after these windows of theirs."""
    np.subtract.at(windows_left, owners, 1)
    return int(np.count_nonzero(windows_left[np.unique(owners)] == 0))


def _owner(documents: Sequence[Document], starts: Ints, row: int) -> str:
    return f"document {documents[int(np.searchsorted(starts, row, side='right')) - 1].id!r}"


def _ignore(_: int) -> None:
    pass
