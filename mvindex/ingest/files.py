"""Ingest of corpus files into an index: bad rows stop the run or go to a rejects file, and the summary counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from mvindex.corpus import Corpus, Reject, RejectsWriter, Row, Source
from mvindex.errors import CorpusError
from mvindex.ingest.pipeline import Entry, IngestHooks, IngestReport, refuse_duplicate
from mvindex.records import CountCallback


class OnError(Enum):
    """The effect of a bad row."""

    STOP = "stop"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusIngestReport:
    """The counts of a run over corpus files, and the files of rejected rows, each with how its rows were read.

    rejected: rows; rejected_files: files that cannot be read, or not to their end. warnings: things that are wrong in
    files that were read all the same. rejected_in_folders: rows that are in no file of rejects, since, read from there,
    they would lose the folder and the file from their ids.
    """

    ingest: IngestReport
    rejected: int = 0
    rejected_in_folders: int = 0
    rejected_files: int = 0
    rejects_files: Mapping[Path, Source] = field(default_factory=dict)
    reasons_file: Path | None = None
    warnings: int = 0


@dataclass(slots=True)
class CorpusIngest:
    """One run of corpus files into an index; see run().

    on_warning: called with a message for each rejected row. rejects_bad_rows: False where another process, which reads
    the same files, rejects the rows that are no documents. rows_read: documents read so far, ahead of those stored.
    """

    add_entries: Callable[[Iterator[Entry], IngestHooks], IngestReport]
    corpus: Corpus
    on_error: OnError
    rejects_stem: Path
    on_warning: Callable[[str], None]
    rejects_bad_rows: bool = True
    rows_read: int = field(default=0, init=False)
    _rejects: RejectsWriter | None = field(default=None, init=False)
    _rejected_files: int = field(default=0, init=False)
    _rejected_in_folders: int = field(default=0, init=False)

    def run(self, on_progress: CountCallback, should_stop: Callable[[], bool]) -> CorpusIngestReport:
        """Ingest the corpus and return the counts; raise CorpusError at the first bad row unless they are skipped."""
        hooks = IngestHooks(
            on_progress=on_progress,
            on_duplicate=self._on_duplicate,
            should_stop=should_stop,
            max_document_chars=self.corpus.max_document_chars,
        )
        self.corpus.rejects_files = self.on_error is OnError.SKIP
        self.corpus.on_warning = self.on_warning
        with ExitStack() as stack:
            stack.enter_context(self.corpus)
            self._rejects = stack.enter_context(RejectsWriter(self.rejects_stem))
            report = self.add_entries(self._entries(), hooks)
            self._rejects.flush()
            files, reasons = self._rejects.sources, self._rejects.reasons_path
            return CorpusIngestReport(
                ingest=report,
                rejected=self._rejects.count - self._rejected_files,
                rejected_in_folders=self._rejected_in_folders,
                rejected_files=self._rejected_files,
                rejects_files=files,
                reasons_file=reasons,
                warnings=self.corpus.num_warnings,
            )

    def _entries(self) -> Iterator[Entry]:
        for row in self.corpus:
            if isinstance(row, Row):
                self.rows_read += 1
                yield Entry(str(row.location), row.document, source=row, has_made_id=row.has_made_id)
            elif self._stops_at(row):
                raise CorpusError(
                    f"{row.location}: {row.reason}; correct the row, or skip bad rows with --on-error skip"
                )
            elif self.rejects_bad_rows:
                self._reject(row)

    def _stops_at(self, row: Row | Reject) -> bool:
        """Return whether a bad row ends the run: one of a file that was named, unless bad rows are skipped."""
        is_file = isinstance(row, Reject) and row.is_file
        return self.on_error is OnError.STOP and not is_file and not self.corpus.is_of_folder(row.location)

    def _on_duplicate(self, entry: Entry, first_location: str) -> None:
        row: Row = entry.source
        if self._stops_at(row):
            refuse_duplicate(entry, first_location)
        reason = f"id {row.document.id!r} occurs at {first_location} already; an id may occur once in a run"
        self._reject(Reject(row.location, reason, [row.raw]))

    def _reject(self, reject: Reject) -> None:
        if self._rejects is None:
            raise CorpusError(f"{reject.location}: {reject.reason}")
        if reject.is_file:
            self._rejected_files += 1
            place = reject.location if reject.location.line > 1 else reject.location.path
            self.on_warning(f"{place}: {reject.reason}; file rejected")
            self._rejects.write(reject, None)
            return
        self.on_warning(f"{reject.location}: {reject.reason}; row rejected")
        in_folder = self.corpus.is_of_folder(reject.location)
        self._rejected_in_folders += in_folder
        self._rejects.write(reject, None if in_folder else self.corpus.source_of(reject.location))
