"""Corpus files into an index: bad rows stop the run or go to a rejects file, and the summary counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from mvindex.corpus import Corpus, CorpusFormat, Reject, RejectsWriter, Row
from mvindex.errors import CorpusError
from mvindex.index import Index
from mvindex.ingest import Entry, IngestHooks, IngestReport, refuse_duplicate


class OnError(Enum):
    """What a bad row does."""

    STOP = "stop"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What a run over files did: the index's report, and the rejects with the files that hold them."""

    ingest: IngestReport
    rejected: int = 0
    rejects_files: Mapping[Path, CorpusFormat] = field(default_factory=dict)
    reasons_file: Path | None = None


@dataclass(slots=True)
class FileIngest:
    """One run of corpus files into an index; see run(). on_warning is told of each rejected row.

    keeps_bad_rows: rows that are no documents are rejected here; False where another process does, of the same files.
    """

    index: Index
    corpus: Corpus
    on_error: OnError
    rejects_stem: Path
    on_warning: Callable[[str], None]
    keeps_bad_rows: bool = True
    _rejects: RejectsWriter | None = field(default=None, init=False)

    def run(self, on_progress: Callable[[int], None], should_stop: Callable[[], bool]) -> FileReport:
        """What was done. CorpusError at the first bad row, unless bad rows are to be skipped."""
        on_duplicate = refuse_duplicate if self.on_error is OnError.STOP else self._reject_duplicate
        hooks = IngestHooks(on_progress=on_progress, on_duplicate=on_duplicate, should_stop=should_stop)
        with ExitStack() as stack:
            stack.enter_context(self.corpus)
            self._rejects = stack.enter_context(RejectsWriter(self.rejects_stem))
            report = self.index.add_entries(self._entries(), hooks)
            self._rejects.flush()
            files, reasons = self._rejects.formats, self._rejects.reasons_path
            return FileReport(ingest=report, rejected=self._rejects.count, rejects_files=files, reasons_file=reasons)

    def _entries(self) -> Iterator[Entry]:
        for row in self.corpus:
            if isinstance(row, Row):
                yield Entry(str(row.place), row.document, source=row)
            elif self.on_error is OnError.STOP:
                raise CorpusError(f"{row.place}: {row.reason}; mend the row, or leave bad rows out by --on-error skip")
            elif self.keeps_bad_rows:
                self._reject(row)

    def _reject_duplicate(self, entry: Entry, first_place: str) -> None:
        row: Row = entry.source
        reason = f"id {row.document.id!r} stands at {first_place} already; an id may stand once in a run"
        self._reject(Reject(row.place, reason, [row.raw]))

    def _reject(self, reject: Reject) -> None:
        if self._rejects is None:
            raise CorpusError(f"{reject.place}: {reject.reason}")
        self.on_warning(f"{reject.place}: {reject.reason}; row rejected")
        self._rejects.write(reject, self.corpus.source_of(reject.place))
