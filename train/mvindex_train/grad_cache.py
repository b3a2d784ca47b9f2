"""Contrastive batches larger than memory: vectors first, their gradients next, the model's gradients chunk by chunk.

Gao, Zhang, Han and Callan 2021, "Scaling deep contrastive learning batch size under memory limited setup" (GradCache):
the loss needs all vectors of a batch together, but its gradient reaches the model through each vector alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mvindex.records import Document, Ints

if TYPE_CHECKING:
    import torch

    from mvindex_train.module import TrainableEncoder, ViewRows

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """The vectors of q questions and n documents.

    queries: (q, d); rows: (r, d); starts: (n + 1,) int64 on the rows' device; spans: (r, 2) characters, -1 for none.
    """

    queries: torch.Tensor
    rows: torch.Tensor
    starts: torch.Tensor
    spans: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """Questions and documents, encoded `size` at a time (None: all at once).

    around: called with a chunk's number, gives the context in which the encoder runs: it seeds dropout and sets the
    floating-point type. A number always gives the same context, so that a chunk encoded twice is encoded alike.
    """

    encoder: TrainableEncoder
    questions: Sequence[str]
    documents: Sequence[Document]
    size: int | None
    around: Callable[[int], AbstractContextManager[None]]

    def encode(self) -> Encoded:
        """The vectors, with a graph where gradients are enabled; without questions or documents of shape (0, 0)."""
        import torch

        queries = [self._encode_queries(number, texts) for number, texts in self._question_chunks()]
        views = [self._encode_documents(number, documents) for number, documents in self._document_chunks()]
        rows = torch.cat([view.rows for view in views]) if views else torch.zeros((0, 0))
        none = torch.zeros(0, dtype=torch.int64)
        counts = torch.cat([none, *(view.starts.diff().cpu() for view in views)])
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).to(rows.device)
        spans = np.concatenate([np.zeros((0, 2), dtype=np.int64), *(view.spans for view in views)])
        return Encoded(torch.cat(queries) if queries else torch.zeros((0, 0)), rows, starts, spans)

    def encode_cached(self) -> Encoded:
        """The vectors without the model's graph; the gradients of a loss stay at queries.grad and rows.grad."""
        import torch

        with torch.no_grad():
            encoded = self.encode()
        encoded.queries.requires_grad_()
        encoded.rows.requires_grad_()
        return encoded

    def backward(self, cached: Encoded) -> None:
        """Nothing; the model's gradients grow by what the gradients at the cached vectors make of them."""
        begin = 0
        for number, texts in self._question_chunks():
            _flow_back(self._encode_queries(number, texts), cached.queries, begin)
            begin += len(texts)
        begin = 0
        for number, documents in self._document_chunks():
            rows = self._encode_documents(number, documents).rows
            _flow_back(rows, cached.rows, begin)
            begin += len(rows)

    def _encode_queries(self, number: int, texts: Sequence[str]) -> torch.Tensor:
        with self.around(number):
            return self.encoder.encode_queries(texts).float()

    def _encode_documents(self, number: int, documents: Sequence[Document]) -> ViewRows:
        with self.around(number):
            return self.encoder.encode_documents(documents)

    def _question_chunks(self) -> list[tuple[int, Sequence[str]]]:
        return list(enumerate(_cut(self.questions, self.size)))

    def _document_chunks(self) -> list[tuple[int, Sequence[Document]]]:
        return list(enumerate(_cut(self.documents, self.size), len(self._question_chunks())))


def _cut(items: Sequence[T], size: int | None) -> list[Sequence[T]]:
    step = size or max(len(items), 1)
    return [items[begin : begin + step] for begin in range(0, len(items), step)]


def _flow_back(vectors: torch.Tensor, cached: torch.Tensor, begin: int) -> None:
    """Nothing; the gradients at the cached vectors go through these, the same ones encoded again, into the model."""
    import torch

    gradient = cached.grad
    if gradient is not None and vectors.requires_grad:
        torch.autograd.backward([vectors], [gradient[begin : begin + len(vectors)].to(vectors.dtype)])
