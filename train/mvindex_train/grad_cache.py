"""GradCache: contrastive batches larger than memory.

Gao, Zhang, Han and Callan 2021, "Scaling deep contrastive learning batch size under memory limited setup" : the loss
needs all vectors of a batch, but its gradient reaches the model through each vector separately. So all vectors are
computed first, then their gradients, then the model's gradients chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mvindex.encoder.arranged import Arranged
from mvindex.records import Document, Ints

if TYPE_CHECKING:
    import torch

    from mvindex_train.module import TrainableEncoder, ViewRows

SlicedT = TypeVar("SlicedT", Sequence[str], Sequence[Document] | Arranged)


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """The vectors of q questions and n documents.

    queries: (q, d); rows: (r, d); starts: (n + 1,) int64 on the CPU; spans: (r, 2) characters, -1 for none.
    """

    queries: torch.Tensor
    rows: torch.Tensor
    starts: torch.Tensor
    spans: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """Questions and documents, encoded `size` at a time (None: all at once).

    chunk_context: called with the number of a chunk, returns the context in which the encoder runs: it seeds dropout
    and sets autocast. The same number gives the same context, so that a chunk is encoded twice with the same result.
    """

    encoder: TrainableEncoder
    questions: Sequence[str]
    documents: Sequence[Document] | Arranged
    size: int | None
    chunk_context: Callable[[int], AbstractContextManager[None]]

    def encode(self) -> Encoded:
        """Return the vectors, with a graph where gradients are enabled; (0, 0) without questions or documents."""
        import torch

        if self.size is None and len(self.questions) and len(self.documents):
            with self.chunk_context(0):
                vectors, view = self.encoder.encode(self.questions, self.documents)
            return Encoded(vectors.float(), view.rows, view.starts, view.spans)
        queries = [self._encode_queries(number, texts) for number, texts in self._question_chunks()]
        views = [self._encode_documents(number, documents) for number, documents in self._document_chunks()]
        rows = torch.cat([view.rows for view in views]) if views else torch.zeros((0, 0))
        none = torch.zeros(0, dtype=torch.int64)
        counts = torch.cat([none, *(view.starts.diff() for view in views)])
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        spans = np.concatenate([np.zeros((0, 2), dtype=np.int64), *(view.spans for view in views)])
        return Encoded(torch.cat(queries) if queries else torch.zeros((0, 0)), rows, starts, spans)

    def encode_cached(self) -> Encoded:
        """Return the vectors without the model's graph; a loss leaves its gradients in queries.grad and rows.grad."""
        import torch

        with torch.no_grad():
            encoded = self.encode()
        encoded.queries.requires_grad_()
        encoded.rows.requires_grad_()
        return encoded

    def backward(self, cached: Encoded) -> None:
        """Propagate the gradients of the cached vectors into the model."""
        begin = 0
        for number, texts in self._question_chunks():
            _backward_chunk(self._encode_queries(number, texts), cached.queries, begin)
            begin += len(texts)
        begin = 0
        for number, documents in self._document_chunks():
            rows = self._encode_documents(number, documents).rows
            _backward_chunk(rows, cached.rows, begin)
            begin += len(rows)

    def _encode_queries(self, number: int, texts: Sequence[str]) -> torch.Tensor:
        with self.chunk_context(number):
            return self.encoder.encode_queries(texts).float()

    def _encode_documents(self, number: int, documents: Sequence[Document] | Arranged) -> ViewRows:
        with self.chunk_context(number):
            return self.encoder.encode_documents(documents)

    def _question_chunks(self) -> list[tuple[int, Sequence[str]]]:
        return list(enumerate(_cut(self.questions, self.size)))

    def _document_chunks(self) -> list[tuple[int, Sequence[Document] | Arranged]]:
        return list(enumerate(_cut(self.documents, self.size), len(self._question_chunks())))


def _cut(items: SlicedT, size: int | None) -> list[SlicedT]:
    step = size or max(len(items), 1)
    return [items[begin : begin + step] for begin in range(0, len(items), step)]


def _backward_chunk(vectors: torch.Tensor, cached: torch.Tensor, begin: int) -> None:
    """Propagate the cached gradients through a chunk that was encoded again."""
    import torch

    gradient = cached.grad
    if gradient is not None and vectors.requires_grad:
        torch.autograd.backward([vectors], [gradient[begin : begin + len(vectors)].to(vectors.dtype)])
