"""Views made of a document's token states: k-means (DRPQ) and learnt codes (Poly-encoder)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvindex.checkpoint.settings import Settings

if TYPE_CHECKING:
    import torch

# DRPQ runs k-means "until it converges" and names no bound. The assignments of a passage settle within some ten rounds.
MAX_ROUNDS = 50


def token_views(
    states: torch.Tensor, mask: torch.Tensor, settings: Settings, codes: torch.Tensor | None
) -> torch.Tensor:
    """The views of documents by their token states, (n, k, d), by k-means or, where there are codes, by them."""
    return cluster_tokens(states, mask, settings.max_views) if codes is None else attend_codes(states, mask, codes)


def pad_tokens(rows: torch.Tensor, counts: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ragged rows (r, d), counts of them a document, as (n, t, d) and where they are, (n, t) bool; gradients flow."""
    import torch

    states = torch.nn.utils.rnn.pad_sequence(list(torch.split(rows, list(counts))), batch_first=True)
    mask = torch.arange(states.shape[1])[None, :] < torch.tensor(counts)[:, None]
    return states, mask.to(rows.device)


def cluster_tokens(states: torch.Tensor, mask: torch.Tensor, num_views: int) -> torch.Tensor:
    """The k-means centroids of each document's token states, (n, k, d) in the states' type (DRPQ eq. 1-2).

    states: (n, t, d); mask: (n, t) bool, True where a token counts, at the left of each line. It starts at equal
    intervals: with m tokens, centroid j at token j * m // k. A cluster that loses all tokens keeps its last ones. A
    document of m < k tokens has m centroids, its tokens; the rows beyond are zero. Gradients flow through the means
    into the states; the assignments are constants (DRPQ eq. 10).
    """
    import torch

    with torch.no_grad():
        members = _members(states.float(), mask, num_views)
    return torch.bmm(members.to(states.dtype), states)


def attend_codes(states: torch.Tensor, mask: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """v_j = sum_i softmax_i(u_j . d_i) d_i, (n, k, d): each code's mean of the states (Poly-encoder, learnt codes).

    states: (n, t, d); mask: (n, t) bool, True where a token counts, at least one a line; codes: (k, d).
    """
    scores = (states @ codes.T.to(states.dtype)).float().transpose(1, 2)
    weights = scores.masked_fill(~mask[:, None, :], float("-inf")).softmax(dim=-1)
    return weights.to(states.dtype) @ states


def _members(states: torch.Tensor, mask: torch.Tensor, num_views: int) -> torch.Tensor:
    """The weight of each token in each centroid's mean, (n, k, t) fp32."""
    import torch

    counts = mask.sum(dim=1)
    is_view = torch.arange(num_views, device=states.device) < counts[:, None].clamp(max=num_views)
    # A document of fewer tokens than k has as many clusters as tokens, each starting (and staying) at one of them.
    size = counts.clamp(max=num_views)
    starts = torch.arange(num_views, device=states.device) * counts[:, None] // size[:, None].clamp(min=1)
    members = torch.nn.functional.one_hot(starts.clamp(max=states.shape[1] - 1), states.shape[1]).float()
    members = members * is_view[:, :, None]
    for _ in range(MAX_ROUNDS):
        updated = _reassign(states, mask, members, is_view)
        if torch.equal(updated, members):
            break
        members = updated
    return members


def _reassign(states: torch.Tensor, mask: torch.Tensor, members: torch.Tensor, is_view: torch.Tensor) -> torch.Tensor:
    """One round: each token to its nearest centroid (the first of equals), each centroid's mean over its tokens."""
    import torch

    centroids = torch.bmm(members, states)
    # |x - c|^2 without |x|^2, which is the same for all centroids of a token.
    distances = centroids.square().sum(dim=-1)[:, :, None] - 2 * torch.bmm(centroids, states.transpose(1, 2))
    nearest = distances.masked_fill(~is_view[:, :, None], float("inf")).argmin(dim=1)
    assigned = torch.nn.functional.one_hot(nearest, members.shape[1]).transpose(1, 2).float() * mask[:, None, :]
    totals = assigned.sum(dim=-1, keepdim=True)
    return torch.where(totals > 0, assigned / totals.clamp(min=1), members)
