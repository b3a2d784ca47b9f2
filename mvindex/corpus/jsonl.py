"""JSON Lines: one object a line, with `id` (jsonl) or `_id` (beir), or without ids."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex.corpus.formats import TextFormat
from mvindex.corpus.json_files import holds_records, open_json
from mvindex.corpus.json_records import BEIR, JSONL, json_source, parse_object, read_record
from mvindex.corpus.lines import Lines, reject_oversize, take_first_line, take_probe
from mvindex.corpus.rows import CorpusOptions, Reject, Row, Source
from mvindex.errors import CorpusError, DocumentError


def open_jsonl(lines: Lines, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the file is read, found in its first lines, and its rows in order; blank lines are skipped.

    An object of several lines, or the only one of the file, may hold an array of records, which is opened as json.
    """
    first, blank = take_first_line(lines)
    probe = take_probe(lines, first)
    is_records = options.format is None and not _is_lines(probe) and holds_records(b"".join(probe))
    if options.format is None and not is_records and first.strip() == b"{":
        raise CorpusError(
            f"{lines.path}: holds JSON objects over several lines; expected one object a line, or an array: "
            f"jq -c . {lines.path}"
        )
    source = None if is_records else json_source(JSONL, lines, probe, options)
    lines.push_back(blank + b"".join(probe), 0)
    return open_json(lines, options) if source is None else (source, _read_rows(lines, source))


# A file of either is opened as JSON Lines, which tells BEIR by its field _id.
FORMATS = (
    TextFormat(name=JSONL, matches=lambda first_line: first_line.lstrip()[:1] == b"{", open=open_jsonl),
    TextFormat(name=BEIR, matches=lambda first_line: False, open=open_jsonl),
)


def _is_lines(probe: list[bytes]) -> bool:
    """Return whether the first line is a whole object, and not the only one."""
    try:
        parse_object(probe[0])
    except DocumentError:
        return False
    return any(not line.isspace() for line in probe[1:])


def _read_rows(lines: Lines, source: Source) -> Iterator[Row | Reject]:
    roles = source.roles
    while line := lines.take():
        if lines.is_cut:
            yield reject_oversize(lines, line)
        elif not line.isspace():
            yield read_record(lines.location, line, source, roles)
