"""The walk over all pages of a database and its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mvindex.errors import StoreError
from mvindex.store.recovery.carving import find_cells
from mvindex.store.recovery.files import DataFile, Place, State
from mvindex.store.recovery.log import Log
from mvindex.store.recovery.page_size import find_page_size
from mvindex.store.recovery.pages import BtreePage, Cell, read_cell, read_page
from mvindex.store.recovery.records import Kind, Record, Source
from mvindex.store.recovery.values import decode_record


def scan_records(path: Path) -> RecordScan:
    """The records of all b-tree pages of the database and of the write-ahead log beside it, whatever is damaged.

    Each source's records come together, COMMITTED ones first; a record may come more than once. No order is promised
    inside a source. StoreError when neither file is there or one cannot be opened.
    """
    return RecordScan(path)


class RecordScan(Iterator[Record]):
    """Records, one after the other. skipped_cells: those listed in a page so far that are no record."""

    def __init__(self, path: Path) -> None:
        self.skipped_cells = 0
        self._records = self._scan(Path(path))

    def __next__(self) -> Record:
        return next(self._records)

    def _scan(self, path: Path) -> Iterator[Record]:
        log_path = path.with_name(path.name + "-wal")
        with DataFile(path) as main, DataFile(log_path) as log:
            if main.is_missing and log.is_missing:
                raise StoreError(f"{path}: no such file, nor a log beside it; nothing to recover from")
            for part in _parts(main, log):
                yield from self._scan_part(part)

    def _scan_part(self, part: _Part) -> Iterator[Record]:
        doubtful = []
        for place in part.places:
            page = part.state.read(place)
            found = read_page(page, place.number, part.state.page_bytes)
            spans: list[tuple[int, int]] = []
            if found is not None:
                yield from self._listed(part, place, found, spans)
            if (found is None or not found.adds_up) and page.count(0) < len(page):
                doubtful.append((place, spans))
        for place, spans in doubtful:
            if place.number not in part.state.claimed:
                yield from _carve(part, place, spans)

    def _listed(self, part: _Part, place: Place, found: BtreePage, spans: list[tuple[int, int]]) -> Iterator[Record]:
        """The records that a page lists; the bytes they take are added to spans."""
        self.skipped_cells += found.num_skipped
        if found.kind is None:
            return
        for cell in found.cells:
            record = part.record(found.kind, cell, place.number)
            if record is None:
                self.skipped_cells += 1
            else:
                spans.append((cell.begin, cell.end))
                yield record


class _Part(NamedTuple):
    """Pages to scan, and the state of the database that their overflow pages are taken from."""

    source: Source
    state: State
    places: Iterable[Place]

    def record(self, kind: Kind, cell: Cell, number: int) -> Record | None:
        """The record of a cell on a page; None when it is no record."""
        try:
            payload, pages = self.state.payload(cell)
            values = decode_record(payload)
        except (ValueError, IndexError):
            return None
        self.state.claimed.update(pages)
        return Record(kind, cell.rowid, values, number, self.source)


def _parts(main: DataFile, log_file: DataFile) -> Iterator[_Part]:
    """What is to be scanned, the most trustworthy first."""
    page_bytes = find_page_size(main, log_file)
    log = Log(log_file)
    frames = log.frames(page_bytes)
    last = max((row + 1 for row, frame in enumerate(frames) if frame.is_vouched and frame.is_commit), default=0)
    salts = log.run_salts(frames)
    end = max((row + 1 for row, frame in enumerate(frames) if frame.salts == salts), default=0)
    committed = {frame.place.number: frame.place for frame in frames[:last]}
    newer = [frame.place for frame in frames[last:end]]
    older = [frame.place for frame in frames[end:]]

    state = State(main, page_bytes, committed)
    yield _Part(Source.COMMITTED, state, state.places())
    state = State(main, page_bytes, committed | {place.number: place for place in newer})
    yield _Part(Source.UNVOUCHED, state, reversed(newer))
    state = State(main, page_bytes, {})
    yield _Part(Source.OUTDATED, state, map(state.place, sorted(committed)))
    state = State(main, page_bytes, {place.number: place for place in older})
    yield _Part(Source.OUTDATED, state, reversed(older))


def _carve(part: _Part, place: Place, spans: list[tuple[int, int]]) -> Iterator[Record]:
    """Records that begin in a damaged page outside the cells that were read."""
    page = part.state.read(place)
    carved = part._replace(source=Source.CARVED)
    for kind, begin in find_cells(page):
        if any(first <= begin < end for first, end in spans):
            continue
        try:
            cell = read_cell(page, begin, kind, part.state.page_bytes)
        except (ValueError, IndexError):
            continue
        record = carved.record(kind, cell, place.number)
        if record is not None:
            yield record
