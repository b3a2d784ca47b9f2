"""Long texts in worker processes: their citations, chosen behind the searches, and their terms.

A thread would take the interpreter from all others, for tens of milliseconds at once where it collects garbage. Where a
worker fails, or takes longer than any ordinary text, a hit has no citation: the same in the server would hold it. Terms
are then found in the server itself: nothing is stored without.
"""

from __future__ import annotations

import asyncio
import binascii
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.corpus.text.citation import Citer, Quoting, ScoredViews, citing_long_texts_by, quoting_long_texts_by
from mvindex.corpus.text.parted import KEPT_CHARS
from mvindex.errors import CorpusError
from mvindex.records import Citation, SearchResult
from mvindex.store.lexical.tokenizer import Lexical, Tokens
from mvindex_connectors.files.parsing import LEFTOVERS, SilentError, parse_data
from mvindex_connectors.server.fairness import FairThread
from mvindex_connectors.server.lanes import QueuedSearch

logger = logging.getLogger(__name__)

# Characters of all results of a request that others need not wait for, where none of the texts is a long one.
_LONG_CHARS = 64 << 10
# CPU time of a worker for one text to be cited; for the terms of a commit, two to four times what the slowest take.
_CPU_S, _CPU_S_PER_MB = 2, 4
# Of the workers that get no time otherwise: searches in the server itself go first.
NICENESS = 10
# How long a machine whose other processes left no time counts as busy.
_BUSY_S = 60.0


@dataclass(slots=True, eq=False)
class Uncited:
    """The results of a request whose citations are not chosen yet."""

    queued: QueuedSearch
    results: list[SearchResult]
    cost: int


def uncited(queued: QueuedSearch, results: list[SearchResult]) -> Uncited | None:
    """Return what waits for its citations; None where these are quickly chosen."""
    if queued.queries.texts is None:
        return None
    sizes = [len(hit.text) for result in results for hit in result.hits]
    if sum(sizes) <= _LONG_CHARS and max(sizes, default=0) <= KEPT_CHARS:
        return None
    return Uncited(queued, results, 1 + sum(sizes) // _LONG_CHARS)


@contextmanager
def citing_in_workers(doc_id: str) -> Iterator[None]:
    """Have long texts of this document cited and quoted by worker processes inside the block."""

    def cite(citer: Citer, text: str, title: str, views: ScoredViews | None) -> Citation | None:
        found = _from_worker(doc_id, [citer.question, text, title, _scored(views), None])
        return found[0] if found else None

    def quote(citer: Citer, text: str, title: str, views: ScoredViews | None, quoting: Quoting) -> list[Citation]:
        numbers = [quoting.count, quoting.context, quoting.max_chars, quoting.max_tokens]
        return _from_worker(doc_id, [citer.question, text, title, _scored(views), numbers])

    with citing_long_texts_by(cite), quoting_long_texts_by(quote):
        yield


def _scored(views: ScoredViews | None) -> list[list[Any]] | None:
    return None if views is None else [views.spans.tolist(), views.scores.tolist()]


def _from_worker(doc_id: str, asked: list[Any]) -> list[Citation]:
    """Return the citations that a worker chooses; none, and a line in the log, where it fails or takes too long."""
    data = json.dumps(asked, ensure_ascii=False).encode()
    cpu_s = _CPU_S + _CPU_S_PER_MB * len(data) // 10**6
    try:
        return [Citation(**one) for one in _parsed("citation", data, cpu_s)]
    except (CorpusError, OSError) as err:
        logger.warning("document %r of %d bytes is not cited: %s", doc_id, len(data), err)
        return []


class _Parsing:
    """Parses in the time that other processes leave, or, where they lately left none, behind them."""

    def __init__(self) -> None:
        self.busy_until = 0.0

    def __call__(self, form: str, data: bytes, cpu_s: int) -> Sequence[Any]:
        if time.monotonic() >= self.busy_until:
            try:
                return list(parse_data(form, data, cpu_s, LEFTOVERS))
            except SilentError:
                self.busy_until = time.monotonic() + _BUSY_S
        return list(parse_data(form, data, cpu_s, NICENESS))


_parsed = _Parsing()


class LongCitations:
    """The requests that wait for their citations, and the thread that chooses them; all calls in one event loop."""

    def __init__(self, complete: Callable[[Uncited], Any], resolve: Callable[[QueuedSearch, Any], None]) -> None:
        """complete: chooses the citations, in the thread, and returns the answer. resolve: gives it to the caller."""
        self._complete, self._resolve = complete, resolve
        self._thread = FairThread("cite")

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._thread)

    def add(self, waiting: Uncited) -> None:
        """Choose the citations of a request when its turn has come."""
        waiting.queued.meter.is_in_thread = True
        chosen = self._thread.submit(partial(self._complete, waiting), waiting.queued.caller, waiting.cost)

        def ended(done: asyncio.Future[Any]) -> None:
            if not done.cancelled():
                self._resolve(waiting.queued, done.exception() or done.result())

        chosen.add_done_callback(ended)
        # A cancelled request is not chosen for, and its results are large.
        waiting.queued.future.add_done_callback(lambda _: self._forget(chosen))

    def _forget(self, chosen: asyncio.Future[Any]) -> None:
        if chosen.cancel():
            self._thread.drop_cancelled()

    def close(self) -> None:
        """Finish the request in progress, then stop the thread."""
        self._thread.close()


def tokenize_in_worker(texts: Sequence[str], lexical: Lexical) -> Tokens | None:
    """Return the terms of the texts as a worker finds them; None, and a line in the log, where it fails."""
    data = json.dumps([list(texts), lexical.value], ensure_ascii=False).encode()
    arrays: list[npt.NDArray[Any]] = []
    try:
        parts = iter(_parsed("terms", data, _CPU_S + _CPU_S_PER_MB * len(data) // 10**6))
        for dtype in parts:
            content = bytearray()
            while (piece := next(parts)) is not None:
                content += binascii.a2b_base64(piece)
            arrays.append(np.frombuffer(content, dtype=dtype))
    except (CorpusError, OSError) as err:
        logger.warning("the terms of %d bytes are found in the server itself: %s", len(data), err)
        return None
    return Tokens(*arrays)
