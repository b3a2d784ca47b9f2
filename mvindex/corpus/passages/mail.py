"""E-mails (.eml): the body as text, the subject as title; attachments are left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast

from mvindex.corpus.inputs import Input
from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.passages.decode import decode_text
from mvindex.corpus.passages.documents import passage_format, read_whole
from mvindex.corpus.passages.html import outline_html
from mvindex.corpus.passages.outline import Outline, fit_fields
from mvindex.corpus.passages.plain import outline_text
from mvindex.errors import CorpusError

_PEOPLE = ("from", "to", "cc")


def _read(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    message = message_from_bytes(read_whole(file, options), policy=policy.default)
    if not any(name in message for name in ("from", "subject", "date", "received")):
        raise CorpusError(f"{file.name}: expected an e-mail, which begins with lines such as From: and Subject:")
    subject = " ".join(_header(message, "subject").split())
    metadata = {name: text for name in _PEOPLE if (text := _header(message, name))} | _date(message)
    outline = _outline(message, file.name)
    if not outline.text.strip():
        outline = outline_text(subject)
    yield replace(
        outline, title=subject, metadata=fit_fields(metadata, lambda message: file.warn(1, message)), first_line=None
    )


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
