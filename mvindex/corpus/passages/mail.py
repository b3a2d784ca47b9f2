"""E-mails (.eml): the body as text, the subject as title; attachments are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes, policy
from email.headerregistry import HeaderRegistry
from email.message import EmailMessage
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from mvindex.corpus.inputs import Input
from mvindex.corpus.passages.documents import decode_text, passage_format, read_whole
from mvindex.corpus.passages.html import outline_html
from mvindex.corpus.passages.outline import Outline, fit_fields
from mvindex.corpus.passages.plain import outline_text
from mvindex.corpus.rows import CorpusOptions
from mvindex.errors import CorpusError

_PEOPLE = ("from", "to", "cc")
# Python's parser of headers takes time by the square of their length, and compares each line with all open boundaries.
_MAX_HEADER_CHARS = 4096
_MAX_PART_HEADER_CHARS = 100
# What is read of the longer ones of parts, besides their first word.
_PARAMETER = re.compile(r';\s*(?:boundary|charset|start)\s*=\s*(?:"[^"\\]{0,100}"|[^\s;"]{1,100})', re.IGNORECASE)
_MAX_DEPTH = 20
_REGISTRY = HeaderRegistry()


class _Part(EmailMessage):
    """A message or one of its parts, which are nested _MAX_DEPTH deep at most; CorpusError for more."""

    depth = 0

    def attach(self, payload: Any) -> None:
        payload.depth = self.depth + 1
        if self.depth >= _MAX_DEPTH:
            raise CorpusError(f"expected parts nested at most {_MAX_DEPTH} deep, got more")
        super().attach(payload)


@lru_cache(maxsize=4)  # the parser of a message asks for the same header many times; its objects are large
def _parse_header(name: str, value: str) -> Any:
    """Return a header; a very long one is cut, one of a part to its kind and parameters that matter."""
    if name.lower().startswith("content-") and len(value) > _MAX_PART_HEADER_CHARS:
        parameters = (found[0] for found in islice(_PARAMETER.finditer(value), 3))
        value = "".join((value.partition(";")[0][:_MAX_PART_HEADER_CHARS], *parameters))
    return _REGISTRY(name, value[:_MAX_HEADER_CHARS])


_POLICY = policy.default.clone(header_factory=_parse_header)


def _read(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    data = read_whole(file, options)
    try:
        yield _outline_mail(message_from_bytes(data, _class=_Part, policy=_POLICY), file)
    except CorpusError as err:
        raise CorpusError(f"{file.name}: {err}") from err
    except RecursionError as err:
        raise CorpusError(f"{file.name}: expected comments in headers that are not nested as deeply") from err


def _outline_mail(message: EmailMessage, file: Input) -> Outline:
    if not any(name in message for name in ("from", "subject", "date", "received")):
        raise CorpusError("expected an e-mail, which begins with lines such as From: and Subject:")
    long = [name for name, value in message.raw_items() if len(value) > _MAX_HEADER_CHARS]
    if cut := [name for name in ("subject", "date", *_PEOPLE) if name in map(str.lower, long)]:
        file.warn(1, f"expected headers of at most {_MAX_HEADER_CHARS:,} characters, got more; cut: {', '.join(cut)}")
    subject = " ".join(_header(message, "subject").split())
    metadata = {name: text for name in _PEOPLE if (text := _header(message, name))} | _date(message)
    outline = _outline(message, file.name)
    if not outline.text.strip():
        outline = outline_text(subject)
    metadata = fit_fields(metadata, lambda message: file.warn(1, message))
    return replace(outline, title=subject, metadata=metadata, first_line=None)


def _outline(message: EmailMessage, name: str) -> Outline:
    """Return the outline of the plain text, or where there is none of the HTML."""
    body = message.get_body(("plain", "html"))
    if body is None:
        return outline_text("")
    try:
        text = str(body.get_content())
    except (LookupError, UnicodeError):  # a charset that Python does not know
        text, _ = decode_text(cast(bytes, body.get_payload(decode=True)), name)
    text = _clean(text).replace("\r\n", "\n")
    return outline_html(text) if body.get_content_subtype() == "html" else outline_text(text)


def _header(message: EmailMessage, name: str) -> str:
    return _clean(str(message.get(name, "")))


def _date(message: EmailMessage) -> dict[str, Any]:
    """Return the date as an ISO text; as it stands where it is none."""
    date = getattr(message.get("date"), "datetime", None)
    text = _header(message, "date") if date is None else date.isoformat()
    return {"date": text} if text else {}


def _clean(text: str) -> str:
    """Return a text without NUL, and without the lone surrogates that stand for bytes of an unknown charset."""
    return text.replace("\0", "").encode(errors="replace").decode()


FORMATS = (passage_format("email", (".eml",), _read),)
