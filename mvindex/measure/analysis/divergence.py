"""Divergence between the attention of a document's views."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mvindex.measure.analysis.similarity import MOST_SLOTS
from mvindex.records import Doubles, Floats

# Where a view may not attend, the divergence would be infinite: such a share counts as this.
LEAST_SHARE = 1e-9


def divergences(attention: Floats) -> Doubles:
    """Return KL(i, j) = sum_l a_jl log(a_jl / a_il), (k, k), of one document's attention (k, t) (CAMVR eq. 14)."""
    shares = np.maximum(attention.astype(np.float64), LEAST_SHARE)
    shares /= shares.sum(axis=1, keepdims=True)
    logs = np.log(shares)
    entropies = np.einsum("jl,jl->j", shares, logs)
    kl: Doubles = np.maximum(entropies[None, :] - logs @ shares.T, 0)
    np.fill_diagonal(kl, 0)
    return kl


def mean_divergences(attentions: Iterable[Floats | None]) -> dict[str, Any] | None:
    """Return the section `attention`: the mean KL of each pair of slots over the documents that have both.

    Return None if no document has two views in one window. `mean` is over a document's pairs, then over documents.
    """
    sums, counts = np.zeros((2, MOST_SLOTS, MOST_SLOTS))
    total, documents = 0.0, 0
    for attention in attentions:
        if attention is None or len(attention) < 2:
            continue
        kl = divergences(attention[:MOST_SLOTS])
        size = len(kl)
        sums[:size, :size] += kl
        counts[:size, :size] += 1
        total += float(kl.sum()) / (size * (size - 1))
        documents += 1
    if not documents:
        return None
    used = int(np.count_nonzero(counts[0]))
    means = [[float(sums[i, j] / counts[i, j]) if counts[i, j] else None for j in range(used)] for i in range(used)]
    return {"kl": means, "mean": total / documents, "documents": documents}
