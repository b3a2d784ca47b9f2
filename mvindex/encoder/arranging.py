"""Documents are split, tokenised and laid out in windows by other processes, ahead of a device that encodes them.

One core cannot arrange documents as fast as a GPU may encode them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mvindex.encoder.arranged import Arranged, Inputs, joined
from mvindex.encoder.workers import Workers
from mvindex.kernels.threads import default_threads
from mvindex.records import Document

# Documents that a process arranges at once: the device waits for the first of them only.
_DOCUMENTS_AT_ONCE = 128
_MOST_PROCESSES = 8


class Arranging:
    """Processes that arrange documents as one encoder's Inputs do."""

    def __init__(self, inputs: Inputs, num_devices: int = 1, share: int = 1) -> None:
        """Start the processes: as many as the machine leaves, up to eight for each device.

        share: how many processes of this machine do so.
        """
        count = max(1, min(_MOST_PROCESSES * num_devices, default_threads() // share - num_devices))
        setup = inputs.setup()
        self._workers = Workers("mvindex.encoder.arranging:serve", [setup] * count, threads=1)

    def arrange(self, cut: Iterable[Sequence[Document]]) -> Iterator[Arranged]:
        """Yield the windows of each slice of documents, in order, while later ones are arranged."""
        sizes: list[int] = []
        answers = self._workers.map(_requests(cut, sizes))
        for number in itertools.count():
            first = next(answers, None)
            if first is None:
                return
            rest = itertools.islice(answers, sizes[number] - 1)
            yield joined([Arranged.from_bytes(answer) for answer in (first, *rest)])

    def close(self) -> None:
        """End the processes."""
        self._workers.close()


def _requests(cut: Iterable[Sequence[Document]], sizes: list[int]) -> Iterator[list[tuple[str, str]]]:
    """Yield the parts of each slice; add how many there are of each to sizes, before its first."""
    for documents in cut:
        begins = range(0, max(len(documents), 1), _DOCUMENTS_AT_ONCE)
        sizes.append(len(begins))
        for begin in begins:
            yield [(each.text, each.title) for each in documents[begin : begin + _DOCUMENTS_AT_ONCE]]


def serve(setup: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return what arranges documents in another process; see workers.Handler."""
    inputs = Inputs.of_setup(setup)

    def arrange(texts: list[tuple[str, str]]) -> dict[str, bytes | None]:
        documents = [Document("document", text, title) for text, title in texts]
        return inputs.arrange_documents(documents).as_bytes()

    return arrange
