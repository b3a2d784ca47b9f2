"""Packages, limits and errors of the parsers."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from mvindex.corpus.inputs import Input
from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.passages.documents import read_whole
from mvindex.errors import CorpusError, MvindexError
from mvindex.plugins import require

# A file of Office before 2007, or an encrypted one of today.
_OLE_MAGIC = b"\xd0\xcf\x11\xe0"
# Office files are zip archives of text, which shrinks to a tenth; more is a trap.
_LARGEST_RATIO = 20


def require_parser(module: str, file: Input) -> ModuleType:
    """Import and return a parser; ExtraMissing, with the install command, names the file."""
    return require(module, "files", f"reading {file.name}")


@contextmanager
def parser_errors(file: Input) -> Iterator[None]:
    """Turn whatever a parser raises on a damaged file into a CorpusError that names the file."""
    try:
        yield
    except MvindexError:
        raise
    except Exception as err:  # noqa: BLE001 - parsers raise errors of many kinds on damaged files
        reason = str(err).strip().splitlines()[:1] or [type(err).__name__]
        raise CorpusError(f"{file.name}: is damaged, or not of the kind that its name says: {reason[0]:.200}") from err


def read_archive(file: Input, options: CorpusOptions) -> io.BytesIO:
    """Return the bytes of an Office or EPUB file, checked to be an archive that does not swell."""
    data = read_whole(file, options)
    if data.startswith(_OLE_MAGIC):
        raise CorpusError(
            f"{file.name}: is encrypted, or of an Office before 2007; save it without a password in today's format"
        )
    stream = io.BytesIO(data)
    with parser_errors(file), zipfile.ZipFile(stream) as archive:
        size_bytes = sum(member.file_size for member in archive.infolist())
    limit = _LARGEST_RATIO * options.max_file_bytes
    if size_bytes > limit:
        raise CorpusError(f"{file.name}: unpacks to {size_bytes:,} bytes; expected at most {limit:,}")
    stream.seek(0)
    return stream
