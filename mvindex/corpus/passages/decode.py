"""Decodes the bytes of a text file: by its byte order mark, as UTF-8, else in the encoding that is detected."""

from __future__ import annotations

import codecs
import re

from mvindex.corpus.text.normal import unset
from mvindex.errors import CorpusError
from mvindex.plugins import install_command

# UTF-32 first: its mark begins as that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_META_BYTES = 1024


def decode_text(data: bytes, name: str) -> tuple[str, str]:
    """Return the text without a byte order mark and marks of the typesetter, and the name of its encoding.

    Raises:
        CorpusError: The bytes are no text, or in an encoding that cannot be detected; the way out is named.

    """
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)
    try:
        text = data.decode(encoding or "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as err:
        if encoding is not None:
            raise CorpusError(
                f"{name}: has the byte order mark of {encoding}, but byte {err.start} is not valid in it"
            ) from err
        text, encoding = _detect(data, name, err.start)
    if "\0" in text:
        raise CorpusError(f"{name}: holds a NUL at character {text.index(chr(0)) + 1}; expected text")
    # Lines of an old Mac.
    return unset(text if "\n" in text else text.replace("\r", "\n")), encoding or "utf-8"


def decode_html(data: bytes, name: str) -> tuple[str, str]:
    """Return the text of an HTML file, in the encoding that it declares, and that encoding's name."""
    declared = _META_CHARSET.search(data[:_META_BYTES])
    if declared and not data.startswith(tuple(mark for mark, _ in _MARKS)):
        encoding = declared[1].decode("ascii")
        try:
            return data.decode(encoding), codecs.lookup(encoding).name
        except (LookupError, UnicodeDecodeError):
            pass  # declared wrongly: decoded as any text
    return decode_text(data, name)


def _detect(data: bytes, name: str, position: int) -> tuple[str, str]:
    reason = f"{name}: byte {position} is {data[position]:#04x}, which is not valid UTF-8"
    way_out = f"convert it, for example: iconv -f latin1 -t utf-8 '{name}'"
    if b"\0" in data:
        raise CorpusError(f"{reason}, and it holds NUL bytes; expected text, got binary data")
    try:
        from charset_normalizer import from_bytes
    except ImportError as err:
        raise CorpusError(f"{reason}; {way_out}, or have it detected: {install_command('files')}") from err
    found = from_bytes(data).best()
    if found is None:
        raise CorpusError(f"{reason}, and no other encoding fits; {way_out}")
    return data.decode(found.encoding), found.encoding
