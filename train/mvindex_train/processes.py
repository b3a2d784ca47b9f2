"""The processes that train together: each encodes its part of a batch, and all see all of its vectors."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from mvindex.encoder.device import choose_device
from mvindex.plugins import require

if TYPE_CHECKING:
    import torch

# Mining and reading are done by one process while the others wait for it.
_LONGEST_WAIT = timedelta(hours=12)


class Processes:
    """The process at work among those that `accelerate launch` or torchrun started; alone when none of them did.

    device: where this process computes; a name is only taken alone, since several GPUs are dealt out by rank.
    Raises ConfigError for a device that is not there, ExtraMissing without accelerate.
    """

    def __init__(self, device: str | None = None) -> None:
        accelerate = require("accelerate", "train", "training")
        import torch

        # Left to itself accelerate takes each of several processes without a GPU for one that is alone.
        on_cpu = device == "cpu" or not torch.cuda.is_available()
        state = accelerate.PartialState(cpu=on_cpu, timeout=_LONGEST_WAIT)
        self.rank: int = state.process_index
        self.count: int = state.num_processes
        self.device: torch.device = state.device if self.count > 1 else choose_device(device)
        self._utils = require("accelerate.utils", "train", "training")

    @property
    def is_main(self) -> bool:
        """True for the one process that writes files."""
        return self.rank == 0

    def share(self, num_items: int) -> slice:
        """The items that this process takes of so many; shares are runs of items in the order of ranks.

        The first process takes them all when there are fewer than processes.
        """
        if num_items < self.count:
            return slice(0, 0 if self.rank else num_items)
        return slice(num_items * self.rank // self.count, num_items * (self.rank + 1) // self.count)

    def join(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows (m_i, ...) of all processes on end, in the order of ranks; gradients flow to this process's own.

        A process without rows may give a tensor of shape (0, 0).
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
        found = [part[:size] for part, size in zip(parts, sizes, strict=True)]
        return torch.cat([*found[: self.rank], own, *found[self.rank + 1 :]])

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Nothing; every gradient is the sum of all processes' gradients; one that no process has stays None."""
        import torch

        if self.count == 1:
            return
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        has_gradient = torch.tensor([float(each.grad is not None) for each in trained], device=self.device)
        is_used = self._utils.reduce(has_gradient, reduction="sum").tolist()
        used = [parameter for parameter, count in zip(trained, is_used, strict=True) if count]
        for parameter in used:
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = self._utils.reduce(own, reduction="sum")

    def any(self, flag: bool) -> bool:
        """True when the flag is set in any process."""
        import torch

        if self.count == 1:
            return flag
        return bool(self._utils.reduce(torch.tensor([float(flag)], device=self.device), reduction="sum").item())

    def wait(self) -> None:
        """Nothing; every process has come here."""
        self._utils.wait_for_everyone()
