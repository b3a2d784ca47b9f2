"""Distributed training: each process encodes its share of a batch, and all gather all vectors."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from mvindex.encoder.device import choose_device
from mvindex.plugins import require
from mvindex.records import Ints

if TYPE_CHECKING:
    import torch

# One process mines and reads while the others wait for it.
_LONGEST_WAIT = timedelta(hours=12)


class Processes:
    """One process among those started by `accelerate launch` or torchrun; otherwise a single process.

    device: used by a single process only; several processes get their GPUs by rank. Raises ConfigError for a device
    that does not exist, ExtraMissing without accelerate.
    """

    def __init__(self, device: str | None = None) -> None:
        accelerate = require("accelerate", "train", "training")
        import torch

        # Otherwise accelerate treats each of several processes without a GPU as a single process.
        on_cpu = device == "cpu" or not torch.cuda.is_available()
        state = accelerate.PartialState(cpu=on_cpu, timeout=_LONGEST_WAIT)
        self.rank: int = state.process_index
        self.count: int = state.num_processes
        # On this machine, as torchrun and accelerate tell.
        self.local_count = min(self.count, max(1, int(os.environ.get("LOCAL_WORLD_SIZE", self.count))))
        self.device: torch.device = state.device if self.count > 1 else choose_device(device)
        self._utils = require("accelerate.utils", "train", "training")

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def share(self, num_items: int) -> slice:
        """Return this process's share of the items; shares are contiguous, in the order of ranks.

        The first process takes all items when there are fewer items than processes.
        """
        if num_items < self.count:
            return slice(0, 0 if self.rank else num_items)
        return slice(num_items * self.rank // self.count, num_items * (self.rank + 1) // self.count)

    def join(self, rows: torch.Tensor) -> torch.Tensor:
        """Concatenate the rows (m_i, ...) of all processes in order of rank; gradients flow to this process's rows.

        A process without rows may pass a tensor of shape (0, 0).
        """
        import torch

        if self.count == 1:
            return rows
        shapes = self._utils.gather(torch.tensor([rows.shape], device=rows.device))
        sizes, rest = shapes[:, 0].tolist(), shapes[:, 1:].amax(dim=0).tolist()
        own = rows if len(rows) else rows.new_zeros((0, *rest))
        padded = own.new_zeros((max(sizes), *rest))
        padded[: len(own)] = own.detach()
        parts = self._utils.gather(padded).split(max(sizes))
        rows_of_rank = [part[:size] for part, size in zip(parts, sizes, strict=True)]
        return torch.cat([*rows_of_rank[: self.rank], own, *rows_of_rank[self.rank + 1 :]])

    def join_known(self, rows: Ints) -> Ints:
        """Concatenate rows (m_i, ...) of numbers that each process knows for itself; a single one waits for nothing."""
        import torch

        if self.count == 1:
            return rows
        joined: Ints = self.join(torch.from_numpy(rows).to(self.device)).cpu().numpy()
        return joined

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace every gradient by the sum over all processes; one that no process has stays None."""
        import torch

        if self.count == 1:
            return
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        has_gradient = torch.tensor([float(each.grad is not None) for each in trained], device=self.device)
        is_used = self._utils.reduce(has_gradient, reduction="sum").tolist()
        used = [parameter for parameter, count in zip(trained, is_used, strict=True) if count]
        # All of a type at once: each call waits for all processes.
        for dtype in dict.fromkeys(parameter.dtype for parameter in used):
            alike = [parameter for parameter in used if parameter.dtype == dtype]
            own = [torch.zeros_like(each) if each.grad is None else each.grad for each in alike]
            total = self._utils.reduce(torch.cat([each.flatten() for each in own]), reduction="sum")
            for parameter, part in zip(alike, total.split([each.numel() for each in alike]), strict=True):
                parameter.grad = part.view_as(parameter)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        import torch

        if self.count == 1:
            return flag
        return bool(self._utils.reduce(torch.tensor([float(flag)], device=self.device), reduction="sum").item())

    def wait(self) -> None:
        """Wait until every process has called this."""
        self._utils.wait_for_everyone()
