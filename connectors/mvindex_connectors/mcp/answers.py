"""Answers of the tools: passages with their sources, of a bounded number of characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json

from mvindex.errors import QueryError
from mvindex.records import Document, Hit, IndexInfo, SearchResult

# Answers are dataclasses without slots, which pydantic takes for defaults.

# Values of metadata that sources shows of each field, and the characters of one.
_EXAMPLES, _EXAMPLE_CHARS = 3, 60
# Characters of a passage, where there are so many: with fewer it says too little.
_LEAST_PASSAGE = 800
# Files that sources names.
_FILES = 100


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A document that search found; its text is quoted, and may be cut around the cited sentence.

    file, page, line and end_line: where the cited sentence stands, where the document's metadata say it. text_start:
    the character of the document that `text` begins at; text_length: of the whole document. confidence: the estimated
    probability that the passage answers; absent where the index has no calibration.
    """

    id: str
    uri: str
    score: float
    confidence: float | None = None
    title: str = ""
    cited: str | None = None
    citations: list[dict[str, Any]] = field(default_factory=list)
    file: str | None = None
    page: int | None = None
    line: int | None = None
    end_line: int | None = None
    text: str = ""
    text_start: int = 0
    text_length: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Found:
    """The passages of a search, best first.

    exact: True only where these are provably the best of all documents. left_out: passages dropped for lack of room.
    next: with cursor, that of the next page; absent after the last. duplicates_of: with diversity, ids of
    near-duplicates of better passages, and the ids of these, as many as there is room for. below_confidence: with
    min_confidence, passages left out; where it is above 0 and there is no passage, the documents have no answer.
    """

    mode: str
    exact: bool
    passages: list[Passage]
    left_out: int = 0
    next: str | None = None
    duplicates_of: dict[str, str] = field(default_factory=dict)
    below_confidence: int = 0


@dataclass(frozen=True, kw_only=True)
class Text:
    """Characters [start, end) of a document's text; next_start: where to read on, absent at the end."""

    id: str
    title: str
    text: str
    start: int
    end: int
    length: int
    next_start: int | None
    metadata: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class MetadataField:
    """A field of metadata: in how many of the sampled documents, and examples of its values."""

    name: str
    documents: int
    examples: list[Any]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """A description of the index; fields and files are those of the first documents, `sampled` of them."""

    documents: int
    views: int
    encoder: str | None
    lexical: str | None
    sampled: int
    fields: list[MetadataField]
    files: list[str]


@dataclass(frozen=True, kw_only=True)
class Added:
    """The ids of the documents that were added or replaced."""

    ids: list[str]


def size_of(answer: Any) -> int:
    """Return the characters of an answer as an agent gets it."""
    return len(to_json(asdict(answer), indent=2).decode())


def found_of(result: SearchResult, max_chars: int) -> Found:
    """Return the passages of a result, each with its share of the characters, as many as there is room for."""
    found = Found(
        mode=result.mode,
        exact=result.exact,
        passages=[],
        left_out=len(result.hits),
        next=result.next,
        duplicates_of=dict(result.duplicates_of),
        below_confidence=result.below_confidence,
    )
    while size_of(found) > max_chars // 2 and found.duplicates_of:
        few = list(found.duplicates_of.items())[: len(found.duplicates_of) // 2]
        found = replace(found, duplicates_of=dict(few))
    passages: list[Passage] = []
    room = max_chars - size_of(found)
    for hit in result.hits:
        share = room // (len(result.hits) - len(passages))
        passage = _passage(hit, min(room, max(share, _LEAST_PASSAGE)))
        room -= _size_within(passage)
        if room < 0:
            break
        passages.append(passage)
    return replace(found, passages=passages, left_out=len(result.hits) - len(passages))


def text_of(document: Document, start: int, end: int | None, max_chars: int) -> Text:
    """Return a part of a document's text, as much as there is room for; QueryError for an end before its start."""
    if end is not None and end < start:
        raise QueryError(f"end: expected a character from start={start} on, got {end}")
    length = len(document.text)
    begin = min(start, length)
    stop = max(begin, min(length if end is None else end, length))
    metadata = _shown(document.metadata)
    while True:
        answer = Text(
            id=document.id,
            title=document.title,
            text=document.text[begin:stop],
            start=begin,
            end=stop,
            length=length,
            next_start=stop if stop < length else None,
            metadata=metadata,
        )
        if size_of(answer) <= max_chars or stop == begin:
            return answer
        if stop - begin > max_chars:
            stop = begin + max_chars
        elif metadata and size_of(replace(answer, text="")) > max_chars // 2:
            metadata = {}
        else:
            stop = begin + (stop - begin) * 3 // 4


def sources_of(info: IndexInfo, documents: Iterable[Document], max_chars: int) -> Sources:
    """Return a description of the index, with the metadata of some documents."""
    counts: Counter[str] = Counter()
    examples: dict[str, dict[str, Any]] = {}
    files: dict[str, None] = {}
    sampled = 0
    for document in documents:
        sampled += 1
        for name, value in _shown(document.metadata).items():
            counts[name] += 1
            shown = value if isinstance(value, int | float | bool) else str(value)[:_EXAMPLE_CHARS]
            examples.setdefault(name, {}).setdefault(str(shown), shown)
        if isinstance(document.metadata.get("file"), str):
            files[document.metadata["file"]] = None
    fields = [
        MetadataField(name=name, documents=count, examples=list(examples[name].values())[:_EXAMPLES])
        for name, count in counts.most_common()
    ]
    encoder = info.encoder
    sources = Sources(
        documents=info.documents,
        views=info.views,
        encoder=None if encoder is None else str(encoder.get("name") or encoder.get("source") or "unnamed"),
        lexical=info.lexical,
        sampled=sampled,
        fields=fields,
        files=list(files)[:_FILES],
    )
    while size_of(sources) > max_chars and (sources.files or sources.fields):
        sources = replace(sources, files=sources.files[: len(sources.files) // 2])
        if not sources.files:
            sources = replace(sources, fields=sources.fields[: len(sources.fields) // 2])
    return sources


def uri_of(id: str) -> str:
    """Return the address of a document as a resource."""
    return f"mvindex://documents/{quote(id, safe='')}"


def _size_within(passage: Passage) -> int:
    """Return the characters that a passage adds to an answer, at most."""
    return size_of(Found(mode="", exact=True, passages=[passage])) - size_of(Found(mode="", exact=True, passages=[]))


def _passage(hit: Hit, room: int) -> Passage:
    """Return a hit as a passage of so many characters, or its id alone where that takes more.

    Metadata and citations are whole or absent; title, cited sentence and text are cut where there is no room.
    """
    confidence = None if hit.confidence is None else round(hit.confidence, 4)
    passage = Passage(id=hit.id, uri=uri_of(hit.id), score=hit.score, confidence=confidence, text_length=len(hit.text))
    least = _size_within(passage)
    spare = room - least
    passage = _filled(passage, least + spare // 4, "title", hit.title)
    cite = hit.citation
    if cite is not None:
        passage = _with(passage, room, file=cite.file, page=cite.page, line=cite.line, end_line=cite.end_line)
        # The text quotes it again.
        passage = _filled(passage, least + spare // 2, "cited", cite.text)
    passage = _with(passage, least + spare * 3 // 4, metadata=_shown(hit.metadata))
    passage = _with_citations(passage, room, hit)
    begin, end = (0, 0) if cite is None else (cite.start, cite.end)
    length = min(len(hit.text), max(0, room - _size_within(passage)))
    while length:
        start = max(0, min(begin - max(0, length - (end - begin)) // 2, len(hit.text) - length))
        fuller = _with(passage, room, text=hit.text[start : start + length], text_start=start)
        if fuller is not passage:
            return fuller
        length = length * 3 // 4
    return passage


def _with(passage: Passage, room: int, **fields: Any) -> Passage:
    """Return the passage with these fields where it then has at most so many characters, else the passage."""
    fuller = replace(passage, **fields)
    return fuller if _size_within(fuller) <= room else passage


def _filled(passage: Passage, room: int, name: str, text: str) -> Passage:
    """Return the passage with as much of a text in a field as there is room for."""
    text = text[: max(0, room)]
    while text:
        fuller = _with(passage, room, **{name: text})
        if fuller is not passage:
            return fuller
        text = text[: len(text) * 3 // 4]
    return passage


def _with_citations(passage: Passage, room: int, hit: Hit) -> Passage:
    """Return the passage with the citations of a hit, without the parts of their scores: as many as fit."""
    for cited in hit.citations:
        one = {name: value for name, value in cited.as_json().items() if name != "why"} | {"score": cited.score}
        fuller = _with(passage, room, citations=[*passage.citations, one])
        if fuller is passage:
            break
        passage = fuller
    return passage


def _shown(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata without the absolute path of the folder that a file was read from."""
    return {name: value for name, value in metadata.items() if name != "folder_path"}
