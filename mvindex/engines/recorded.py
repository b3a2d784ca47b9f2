"""Recordings of a query's kernels as CUDA graphs: one call starts them, not one for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from operator import is_not
from threading import Lock
from typing import Any

import numpy.typing as npt
import torch

from mvindex.encoder.device import pinned
from mvindex.engines.device_views import Chunk, to_host

logger = logging.getLogger(__name__)
# Each holds its own memory for what lies between.
_MOST = 4
# A process records one graph at a time: what another one waits for would break it.
_RECORDING = Lock()


class Recorded:
    """A computation on tensors that stay where they are. Thread-safe: one call goes at a time.

    On a GPU it is a CUDA graph, on a CPU the same calls again.
    """

    def __init__(
        self, compute: Callable[[], torch.Tensor], inputs: Sequence[torch.Tensor], used: Callable[[], object]
    ) -> None:
        """Record it.

        Args:
            compute: The computation.
            inputs: What each call writes anew.
            used: Returns, after a computation, what else it reads and writes: a graph holds none of it.

        """
        self._inputs, self._lock = inputs, Lock()
        self._replay = recording(compute, inputs[0].device)
        self._used = used()

    def __call__(self, arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the result for these inputs; waits for the device once."""
        with self._lock:
            for tensor, array in zip(self._inputs, arrays, strict=True):
                tensor.copy_(pinned(array, tensor.device), non_blocking=True)
            return to_host(self._replay())


def recording(compute: Callable[[], torch.Tensor], device: torch.device) -> Callable[[], torch.Tensor]:
    """Return what does the same again on the device; compute itself where CUDA cannot record it."""
    if device.type != "cuda":
        return compute
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream(device))
    try:
        # The outer block makes the stream of before the current one again also where a recording fails.
        with torch.cuda.stream(stream):
            # What libraries set up at their first call cannot be recorded.
            compute()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                result = compute()
    except RuntimeError as err:  # also where memory is short: the stream takes its own
        logger.warning("single queries cannot be recorded on %s, and start kernel by kernel: %s", device, err)
        # What was started there may still write what the next call does.
        torch.cuda.current_stream(device).wait_stream(stream)
        return compute
    torch.cuda.current_stream(device).wait_stream(stream)

    def replay() -> torch.Tensor:
        graph.replay()
        return result

    return replay


class Recordings:
    """The recordings of computations over one set of chunks. Thread-safe."""

    def __init__(self) -> None:
        self._chunks: tuple[Chunk, ...] = ()
        self._made: dict[Hashable, Recorded | None] = {}

    def keep_for(self, chunks: tuple[Chunk, ...]) -> None:
        """Forget what reads other chunks, whose memory it would hold."""
        if len(chunks) != len(self._chunks) or any(map(is_not, chunks, self._chunks)):
            self._chunks, self._made = chunks, {}

    def find(self, wanted: Hashable, make: Callable[[], Recorded]) -> Recorded | None:
        """Return the recording of that name, made when it is wanted for the second time; None before.

        None also while another thread records.
        """
        made = self._made
        if wanted not in made:
            if len(made) >= _MOST:
                made.clear()
            made[wanted] = None
            return None
        if made.get(wanted) is None and _RECORDING.acquire(blocking=False):
            try:
                made[wanted] = made.get(wanted) or make()
            finally:
                _RECORDING.release()
        return made.get(wanted)
