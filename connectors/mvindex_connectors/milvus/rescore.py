"""Score documents of Milvus by the shared scoring function, and keep the best of each query in the total order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mvindex.kernels.score import Scoring, document_scores, view_sums
from mvindex.records import Floats, Ints
from mvindex_connectors.milvus.records import Light


def _no_ints() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class Best:
    """The best documents of one query so far: numbers, scores, slots, ordinals, versions, (m,) each, best first."""

    top_k: int
    documents: Ints = field(default_factory=_no_ints)
    scores: Floats = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    slots: Ints = field(default_factory=_no_ints)
    ordinals: Ints = field(default_factory=_no_ints)
    versions: Ints = field(default_factory=_no_ints)
    num_scored: int = 0
    # Of each of these documents, by number, the scores of its views, (k,).
    view_scores: dict[int, Floats] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Whether there are top_k documents."""
        return len(self.documents) >= self.top_k

    @property
    def threshold(self) -> np.float32:
        """The score of the last of top_k documents; -inf where there are fewer."""
        return np.float32(self.scores[self.top_k - 1]) if self.is_full else np.float32(-np.inf)

    def add(self, query: Floats, documents: Sequence[tuple[Light, Floats]], scoring: Scoring) -> None:
        """Score documents with their views, each once, and keep the best."""
        if not documents:
            return
        packed = np.concatenate([rows for _, rows in documents])
        starts = np.append(0, np.cumsum([len(rows) for _, rows in documents]))
        sums = view_sums(packed, query)
        found = document_scores(sums, starts, scoring)
        numbers, ordinals, versions = np.array(
            [(light.document, light.ordinal, light.version) for light, _ in documents], dtype=np.int64
        ).T
        scores = np.concatenate([self.scores, found.scores])
        ordinals = np.concatenate([self.ordinals, ordinals])
        order = np.lexsort((ordinals, -scores))[: self.top_k]
        self.documents = np.concatenate([self.documents, numbers])[order]
        self.slots = np.concatenate([self.slots, found.slots])[order]
        self.versions = np.concatenate([self.versions, versions])[order]
        known = dict(self.view_scores)
        for row in (order[order >= len(self.scores)] - len(self.scores)).tolist():
            known[int(numbers[row])] = sums[starts[row] : starts[row + 1]].astype(np.float32)
        self.view_scores = {number: known[number] for number in self.documents.tolist()}
        self.scores, self.ordinals = scores[order], ordinals[order]
        self.num_scored += len(documents)
