"""Make views of a document's token states: k-means (DRPQ) and learnt codes (Poly-encoder)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.encoder.arranged import Arranged, ranges
from mvindex.encoder.checkpoint.settings import ClusterInit, Settings
from mvindex.encoder.device import on_device
from mvindex.encoder.text import Ids
from mvindex.records import Ints

if TYPE_CHECKING:
    import torch

# DRPQ runs k-means "until it converges" and names no bound. The assignments of a passage settle within some ten rounds.
MAX_ROUNDS = 50


def token_views(
    states: torch.Tensor, arranged: Arranged, settings: Settings, codes: torch.Tensor | None
) -> torch.Tensor:
    """Return the views of documents, (n, k, d), from their token states, by k-means or by codes where there are any.

    states: (n, t, d), those of each arranged document's tokens at the left of its line, as pad_tokens gives them.
    """
    import torch

    counts = on_device(arranged.num_rows, states.device)
    mask = torch.arange(states.shape[1], device=states.device) < counts[:, None]
    if codes is not None:
        return attend_codes(states, mask, codes)
    starts = None
    if settings.cluster_init is ClusterInit.RANDOM:
        starts = on_device(random_starts(arranged, settings.max_views), states.device)
    return cluster_tokens(states, mask, settings.max_views, starts)


def pad_tokens(rows: torch.Tensor, counts: Ints) -> torch.Tensor:
    """Return ragged rows (r, d), so many per document, as (n, t, d), zero where there are none; gradients flow."""
    lines, columns = np.repeat(np.arange(len(counts)), counts), ranges(np.zeros_like(counts), counts)
    padded = rows.new_zeros((len(counts), int(counts.max()), rows.shape[1]))
    return padded.index_put((on_device(lines, rows.device), on_device(columns, rows.device)), rows)


def unpad_views(views: torch.Tensor, counts: Ints) -> torch.Tensor:
    """Return the first views of each line of (n, k, d), so many per document, one after the other; gradients flow."""
    lines, columns = np.repeat(np.arange(len(counts)), counts), ranges(np.zeros_like(counts), counts)
    return views[on_device(lines, views.device), on_device(columns, views.device)]


def random_starts(arranged: Arranged, num_views: int) -> Ints:
    """Return distinct tokens (n, k), drawn at random for each document, in rising order; 0 beyond its number of tokens.

    The seed is a hash of the document's tokens: a document always starts alike, whatever it is encoded with, and
    nobody's random numbers are touched.
    """
    starts = np.zeros((len(arranged), num_views), dtype=np.int64)
    num_tokens = np.bincount(arranged.owners, weights=arranged.lengths, minlength=len(arranged)).astype(np.int64)
    tokens = np.split(arranged.ids, np.cumsum(num_tokens)[:-1])
    for line, ids, num_rows in zip(starts, tokens, arranged.num_rows.tolist(), strict=True):
        count = min(num_views, num_rows)
        line[:count] = np.sort(np.argsort(_own_draws(ids, num_rows), kind="stable")[:count])
    return starts


def cluster_tokens(
    states: torch.Tensor, mask: torch.Tensor, num_views: int, starts: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the k-means centroids of each document's token states, (n, k, d) in the states' type (DRPQ eq. 1-2).

    states: (n, t, d); mask: (n, t) bool, True where a token counts, at the left of each line. It starts at the tokens
    `starts`, (n, k) int64, or at equal intervals: with m tokens, centroid j at token j * m // k. A cluster that loses
    all tokens keeps its last ones. A document of m < k tokens has m centroids, its tokens; the rows beyond are zero.
    Gradients flow through the means into the states; the assignments are constants (DRPQ eq. 10).
    """
    import torch

    with torch.no_grad():
        members = _members(states.float(), mask, _interval_starts(mask, num_views) if starts is None else starts)
    return torch.bmm(members.to(states.dtype), states)


def attend_codes(states: torch.Tensor, mask: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Return v_j = sum_i softmax_i(u_j . d_i) d_i, (n, k, d): each code's mean of the states (Poly-encoder).

    states: (n, t, d); mask: (n, t) bool, True where a token counts, at least one a line; codes: (k, d).
    """
    scores = (states @ codes.T.to(states.dtype)).float().transpose(1, 2)
    weights = scores.masked_fill(~mask[:, None, :], float("-inf")).softmax(dim=-1)
    return weights.to(states.dtype) @ states


def _own_draws(ids: Ids, count: int) -> npt.NDArray[np.uint64]:
    """Return random numbers, from a seed that depends only on the document's tokens.

    Raw draws of PCG64, which stay the same from one NumPy to the next; those of a Generator need not.
    """
    return np.random.PCG64(xxhash.xxh3_64_intdigest(ids.astype("<i8").tobytes())).random_raw(count)


def _interval_starts(mask: torch.Tensor, num_views: int) -> torch.Tensor:
    """Return the tokens at the cuts of each document into k equal stretches, (n, k) int64 (DRPQ section 3.1)."""
    import torch

    counts = mask.sum(dim=1)[:, None]
    # A document of fewer tokens than k has as many clusters as tokens, each starting (and staying) at one of them.
    return torch.arange(num_views, device=mask.device) * counts // counts.clamp(min=1, max=num_views)


def _members(states: torch.Tensor, mask: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Return the weight of each token in each centroid's mean, (n, k, t) fp32."""
    import torch

    is_view = torch.arange(starts.shape[1], device=states.device) < mask.sum(dim=1)[:, None]
    members = torch.nn.functional.one_hot(starts.clamp(max=states.shape[1] - 1), states.shape[1]).float()
    members = members * is_view[:, :, None]
    for _ in range(MAX_ROUNDS):
        updated = _reassign(states, mask, members, is_view)
        if torch.equal(updated, members):
            break
        members = updated
    return members


def _reassign(states: torch.Tensor, mask: torch.Tensor, members: torch.Tensor, is_view: torch.Tensor) -> torch.Tensor:
    """Run one round: each token to its nearest centroid (the first of equals), each centroid's mean over its tokens."""
    import torch

    centroids = torch.bmm(members, states)
    # |x - c|^2 without |x|^2, which is the same for all centroids of a token.
    distances = centroids.square().sum(dim=-1)[:, :, None] - 2 * torch.bmm(centroids, states.transpose(1, 2))
    nearest = distances.masked_fill(~is_view[:, :, None], float("inf")).argmin(dim=1)
    assigned = torch.nn.functional.one_hot(nearest, members.shape[1]).transpose(1, 2).float() * mask[:, None, :]
    totals = assigned.sum(dim=-1, keepdim=True)
    return torch.where(totals > 0, assigned / totals.clamp(min=1), members)
