"""The encoder of a checkpoint: tokens to windows, windows through the model, states to views."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.checkpoint import Checkpoint, Parts, load_parts, load_tokenizer
from mvindex.encoder.batches import Batch, batches
from mvindex.encoder.clusters import pad_tokens, token_views
from mvindex.encoder.device import batch_shape, choose_device, document_dtype
from mvindex.encoder.families import Arrangement
from mvindex.encoder.forward import last_states
from mvindex.encoder.inputs import Inputs
from mvindex.encoder.pooling import RowMeans
from mvindex.errors import EncoderError, Unsupported
from mvindex.records import CountCallback, Document, Floats, Ints, Views, no_progress

if TYPE_CHECKING:
    import tokenizers
    import torch

# Tokens whose states are held at once while views are made of them: at 768 dimensions 100 MB.
_TOKENS_AT_ONCE = 32768


class TransformerEncoder:
    """Encodes texts as unit vectors (or any norm, if the checkpoint says so) by a transformer.

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
        settings = checkpoint.settings
        self._checkpoint, self._device = checkpoint, device
        self._inputs = Inputs(settings, tokenizer, str(checkpoint.folder))
        self._shape = batch_shape(device, max(settings.document_length, settings.query_length))
        self._query_model: Any = parts.queries.to(device)
        self._source_model: Any = self._query_model if parts.documents is parts.queries else parts.documents.to(device)
        self._codes = None if parts.codes is None else parts.codes.to(device)
        self._head = parts.head
        self._width = int(self._query_model.config.hidden_size)

    @property
    def dim(self) -> int:
        """Return the dimensions of every vector."""
        return self._checkpoint.dense[-1].outputs if self._checkpoint.dense else self._width

    @property
    def max_views(self) -> int | None:
        """Return the most views a document gets."""
        return self._checkpoint.settings.max_views

    @property
    def fingerprint(self) -> str:
        """Return family, number of views, and a hash of all that changes a vector but device and float type."""
        return self._checkpoint.fingerprint

    @property
    def spec(self) -> dict[str, Any]:
        """Return what an index stores to open the encoder again."""
        settings = self._checkpoint.settings
        label = {"label": settings.label} if settings.label else {}
        return {
            "kind": "checkpoint",
            "source": self._checkpoint.source,
            "family": settings.family.name,
            "max_views": settings.max_views,
            "fingerprint": self.fingerprint,
            "dim": self.dim,
            "similarity": settings.similarity.value,
            "temperature": settings.temperature,
            **label,
        }

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return the views of the documents; a text longer than the window takes several, cut between sentences.

        A document without text is its title (span -1, -1), one without any token its special tokens: one view each
        (k of them in the families poly and viewers).
        """
        arranged = self._inputs.arrange_documents(documents)
        starts = np.cumsum([0, *(len(one.spans) for one in arranged)], dtype=np.int64)
        encode = self._encode_tokens if self._checkpoint.settings.family.pools_tokens else self._encode
        rows = self._project(encode(arranged, self._document_model, on_progress or no_progress))
        self._finish(rows, lambda row: _owner(documents, starts, row))
        spans = np.array([span for one in arranged for span in one.spans], dtype=np.int64).reshape(-1, 2)
        return Views(rows, starts, spans)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32: its tokens' states pooled as the checkpoint says, in fp32.

        A query longer than the window is covered by several: its vector is the mean over all of them.
        """
        rows = self._project(self._encode(self._inputs.arrange_queries(texts), self._query_model, no_progress))
        self._finish(rows, lambda row: f"query {row + 1}")
        return rows

    def view_attentions(self, documents: Sequence[Document]) -> list[Floats | None]:
        """Return what each document's views attend to (see attention.view_attentions), in fp32.

        Unsupported for the families whose views are made of all tokens' states: none of them attends by itself.
        """
        from mvindex.encoder.attention import view_attentions

        family = self._checkpoint.settings.family
        if family.pools_tokens:
            raise Unsupported(
                f"views of the family {family.name!r} are made after the last layer and attend to nothing"
            )
        return view_attentions(self._source_model, self._inputs.arrange_documents(documents), self._shape, self._pad_id)

    @cached_property
    def _document_model(self) -> Any:
        dtype = document_dtype(self._device)
        if dtype == self._source_model.dtype:
            return self._source_model
        # The fp32 model stays where questions use it too.
        is_shared = self._source_model is self._query_model
        return (copy.deepcopy(self._source_model) if is_shared else self._source_model).to(dtype)

    def _encode(self, arranged: Sequence[Arrangement], model: Any, on_progress: CountCallback) -> Floats:
        """Return the mean state of each row of the documents or queries, one after the other, float32."""
        starts = np.cumsum([0, *(one.num_rows for one in arranged)], dtype=np.int64)
        windows = [window for one in arranged for window in one.windows]
        num_windows = np.array([len(one.windows) for one in arranged], dtype=np.int64)
        owner = np.repeat(np.arange(len(arranged)), num_windows)
        means = RowMeans(int(starts[-1]), self._width)
        for batch in batches(windows, starts[owner], self._shape, self._pad_id):
            means.add(batch, self._states(batch, model))
            on_progress(_count_finished(num_windows, owner[batch.places]))
        return means.means()

    def _encode_tokens(self, arranged: Sequence[Arrangement], model: Any, on_progress: CountCallback) -> Floats:
        """Return the views made of each document's token states, in the documents' order, float32.

        Few documents are worked on at a time: their tokens' states are held at once.
        """
        starts = np.cumsum([0, *(len(one.spans) for one in arranged)], dtype=np.int64)
        rows = np.zeros((int(starts[-1]), self._width), dtype=np.float32)
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
            views = token_views(states.to(self._device), group, self._checkpoint.settings, self._codes)
        return np.asarray(views.cpu().numpy())

    def _states(self, batch: Batch, model: Any) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            return last_states(model, batch)

    def _project(self, rows: Floats) -> Floats:
        """Return the rows after the Dense modules, if any, in fp32 on the CPU, where they cost next to nothing."""
        import torch

        if self._head is None:
            return rows
        with torch.inference_mode():
            return np.asarray(self._head(torch.from_numpy(rows)).numpy())

    @property
    def _pad_id(self) -> int:
        return int(self._query_model.config.pad_token_id or 0)

    def _finish(self, rows: Floats, name_of_row: Callable[[int], str]) -> None:
        """Check that the rows are finite, and scale them to unit length unless the checkpoint says otherwise."""
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        bad = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
        if len(bad):
            raise EncoderError(f"{name_of_row(int(bad[0]))}: the model gave a vector of norm {norms[bad[0], 0]}")
        if self._checkpoint.settings.normalise:
            rows /= norms


def _groups(order: Ints, num_tokens: Ints, max_tokens: int) -> Iterator[Ints]:
    """Yield consecutive places whose tokens, padded to the first one's, are at most max_tokens (or one place)."""
    begin = 0
    while begin < len(order):
        count = max(1, max_tokens // max(int(num_tokens[order[begin]]), 1))
        yield order[begin : begin + count]
        begin += count


def _count_finished(windows_left: Ints, owners: Ints) -> int:
    """Return how many documents have no window left after these windows of theirs."""
    np.subtract.at(windows_left, owners, 1)
    return int(np.count_nonzero(windows_left[np.unique(owners)] == 0))


def _owner(documents: Sequence[Document], starts: Ints, row: int) -> str:
    return f"document {documents[int(np.searchsorted(starts, row, side='right')) - 1].id!r}"
