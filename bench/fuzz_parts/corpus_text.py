"""Text corpora: each format given, and found from the content; plain, gzip and zstd; rejects written and read again.

The first byte of an input says how the rest is read: see _options.
"""

import gzip
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - what its import takes is no input's memory
import zstandard

from fuzz_parts.corpus_oracle import BOM, Fields, Item, check_lines, check_row
from fuzz_parts.target import Limits, require
from mvindex.corpus import CorpusOptions, RejectsWriter, Row, open_corpus
from mvindex.errors import CorpusError

DPR = (
    b"id\ttext\ttitle\n1\tA cat sat.\tCats\n2\tA dog ran.\tDogs\n",
    b'id\ttext\ttitle\r\n1\t"A ""cat"" sat."\tCats\r\n2\t"Two\r\nlines"\t"Do\tgs"\r\n',
    b"title\ttext\tid\tlang\nT\tx\t1\ten\nT\ty\t2\tde\n\n3\t\tz\n",
    b'id\ttext\n1\t"open\nid\ttext\n2\tb\n3\t"c"d\n\n\n',
    BOM + b"\n\nid\ttext\n\xc3\xa9\t\xf0\x9f\x90\x88\n9\t\xff\n",
    b"id\ttext\n1\t" + b"x" * 60 + b"\n2\ty",
)
MSMARCO = (
    b"0\tThe presence of communication.\n1\tThe Manhattan Project.\n",
    b'D1\t"quotes" stay\nD2\ta "b\n\nD3\tthree\tcells\n',
    BOM + b"7\ta\r\n8\tb\r",
)
JSONL = (
    b'{"id": "1", "text": "a", "title": "t", "l": 1}\n{"id": 2, "text": "b", "metadata": {"y": 1990, "a": [1]}}\n',
    b'{"id": "1", "text": "\\ud83d\\ude00 \\u00e9\\n"}\n\n{"id": "2"}\n[1]\n{"id": "3", "text": null, "title": "x"}',
    b'{"id": "1", "text": "a", "id": "2"}\n{"id": "4", "text": "a", "n": NaN}\n{"id": true, "text": "a"}\n',
    BOM + b'{"id": "1", "text": "a", "metadata": {"m": {"n": null}}, "z": 1.5e3}\r\n{"id": "\\u0000", "text": "b"}\n',
)
BEIR = (
    b'{"_id": "d1", "title": "T", "text": "x", "metadata": {}}\n{"_id": "d2", "title": "", "text": "y"}\n',
    b'{"_id": 5, "text": "a", "url": "http://a"}\n{"_id": "", "text": "b"}\n{"id": "6", "text": "c"}\n',
)
CSV = (
    b'id,title,text,year\n1,Cats,"A ""cat"" sat, here.",1973\n2,Dogs,"Two\nlines",1980.5\n,,,\n',
    BOM + b"sep=;\r\npid;body;tag\r\n007;It ran.;x\r\n\r\n008;;\r\n",
    b"name|description|n\nA|A long text, of words.|1\nB|Another of them.|two\n",
    b'docid\tpassage\theading\na\t"open\ndocid\tpassage\theading\nb\tx y\tT\nc\tz\n',
    b",text\n0,One text.\n1,One text.\n2,\xff\n",
)
JSON = (
    b'[{"id": "1", "text": "a", "l": [1, {"a": "]"}]}, {"id": 2, "text": "b"}]',
    b'{\n "version": 1,\n "skip": [1, "x"],\n "data": [\n  {"body": "a b"},\n  {"body": "\\" }"}\n ]\n}\n',
    b'["One text.", "Another", "One text.", 7, {"text": "z"}]',
    b'[{"id": 1, "text": "a"},\n{"id": 2, "text": b},,{"id": 3}',
)
NO_IDS = (b'{"content": "a b"}\n{"content": "a b", "n": 1}\n{"content": null}\n"x"\n',)
FOREIGN = (
    b"PK\x03\x04....",
    b"\x1f\x8b\x08",
    b"a,b,c\n1,2,3\n",
    b'[{"id": 1}]',
    b"{\n",
    b"i\0d\0\t\0t\0\n\0" * 4,
    b"\n" * 40,
)
SEEDS = {
    "dpr": DPR,
    "msmarco": MSMARCO,
    "beir": BEIR,
    "jsonl": JSONL,
    "csv": CSV,
    "json": JSON,
    "detect": (*DPR, *MSMARCO, *JSONL, *BEIR, *CSV, *JSON, *NO_IDS, *FOREIGN),
}
TOKENS = {
    "tsv": (b"\t", b"\n", b"\r\n", b"\r", b'"', b'""', b'"\t"', b'"\n', b"id", b"text", b"title", b"id\ttext\n", BOM,
            b"\0", b"\xff", b"\xe2\x80\xa8", b"\xc2\x85", b" ", b"\n\n", b"docid", b"PAR1", b"\x1c", b"\x0b"),
    "csv": (b",", b";", b"|", b"sep=;\n", b"1973", b"1e5", b"-0.5", b"body", b"docid", b",,\n", b'","'),
    "json": (b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\n", b"null", b"true", b"NaN", b"-Infinity", b'"id"',
             b'"_id"', b'"text": "a"', b'"title"', b'"metadata": {"a": 1}', b'"a": 1,', b"\\ud800", b"\\u0000", BOM,
             b"1e999", b"{}", b"\xff", b'{"id": "9", "text": "z"}\n', b"\\\\u0000", b"[[[[", b'{"a":'),
}  # fmt: skip
_ROW_BYTES = (1 << 20, 1000, 50, 1 << 20)


def open_target(name: str, folder: Path):
    return CorpusText(name, folder)


class CorpusText(Limits):
    """A corpus file read row by row; name: corpus-FORMAT, or corpus-detect where the file is to show it."""

    refusals = (CorpusError,)
    extra_mib = 24

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        kind = name.removeprefix("corpus-")
        self._given = None if kind == "detect" else kind
        families = {"dpr": ["tsv"], "msmarco": ["tsv"], "csv": ["tsv", "csv"]}.get(kind, ["json"])
        families = families if self._given else ["tsv", "csv", "json"]
        self.tokens = tuple(token for family in families for token in TOKENS[family])
        self._path, self._stem = folder / "corpus", folder / "rejected"

    def seeds(self) -> list[bytes]:
        contents = SEEDS[self.name.removeprefix("corpus-")]
        return [bytes([way]) + content for content in contents for way in (0, 1, 2, 16, 32, 48)]

    def check(self, data: bytes) -> None:
        way, content = data[0] if data else 0, data[1:]
        options = _options(way, self._given)
        self._path.write_bytes(content)
        items, source, error = self._read(options)
        if source is not None:
            if source.format != "json":  # its records are numbered, and written as lines
                check_lines(content, items, source, options.max_row_bytes, is_whole=error is None)
            for item in items:
                check_row(item, source, options.max_row_bytes)
        if way & 16:
            self._check_wrapped(content, options, way, (items, f"{error}"))
        if error is not None:
            raise error
        if self._given is None:
            again = self._read(_given_again(options, source, source.format))
            require(again[0] == items, "with the format", source.format, "given other rows are read:", again[0])
        if way & 32:
            self._check_rejects(items, source, options)

    def _read(self, options: CorpusOptions):
        """Return the items, how the file was read (None: not at all), and the error that ended it."""
        items, corpus = [], None
        try:
            with open_corpus(str(self._path), options) as corpus:
                items.extend(map(_item, corpus))
        except CorpusError as err:
            return items, corpus.source if corpus else None, err
        return items, corpus.source, None

    def _check_wrapped(self, content: bytes, options: CorpusOptions, way: int, plain) -> None:
        """Check that the compressed file gives the same, unless the content itself looks compressed, or is a table."""
        if (
            content.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1\0", b"\xff\xff\xff\xff"))
            or content[1:4] == b"\x2a\x4d\x18"
        ):
            return
        half = len(content) // 2
        wrapped = (
            gzip.compress(content, 1)
            if way & 64
            else zstandard.compress(content[:half]) + zstandard.compress(content[half:])
        )
        self._path.write_bytes(wrapped)
        items, _, error = self._read(options)
        require((items, f"{error}") == plain, "compressed it reads as", items, f"{error}", "and plain as", plain)
        self._path.write_bytes(content)

    def _check_rejects(self, items: list[Item], source, options: CorpusOptions) -> None:
        """Check that the file of rejects gives the same rejects, none of them good, but for blank lines at its end."""
        with open_corpus(str(self._path), options) as corpus, RejectsWriter(self._stem) as writer:
            for row in corpus:
                if not isinstance(row, Row):
                    writer.write(row, source)
        if not writer.count:
            return
        [(path, written)] = writer.formats.items()
        try:
            self._path.write_bytes(path.read_bytes())
            found, _, error = self._read(_given_again(options, source, written))
        finally:
            path.unlink()
            writer.reasons_path.unlink()
        wanted = [_ended(item.raw) for item in items if item.fields is None]
        while wanted and wanted[-1] in (b"\n", b"\r\n"):
            wanted.pop()
        if error is not None or BOM in wanted[0][:3]:  # rejects alone may be binary, blank, or begin with a mark
            return
        require(all(item.fields is None for item in found), "a reject is good when it is read again:", found)
        # A quote that is never closed takes blank lines with it, and they come back as rows.
        again = [_ended(item.raw) for item in found]
        while again and again[-1] in (b"\n", b"\r\n"):
            again.pop()
        require(again == wanted, "rejects", wanted, "are read again as", found)


def _options(way: int, given: str | None) -> CorpusOptions:
    """Parse bits 0 and 1: the largest row; 3: no title; 4: also compressed, 6: with gzip; 5: rejects are read again."""
    return CorpusOptions(format=given, max_row_bytes=_ROW_BYTES[way & 3], title_field="" if way & 8 else None)


def _given_again(options: CorpusOptions, source, form: str) -> CorpusOptions:
    """Return the options with the format and the fields that a file was read with."""
    if form == "msmarco":
        return replace(options, format=form)
    found = replace(source.options_again(), format=form, max_row_bytes=options.max_row_bytes)
    if form != "json":
        return found
    # A given name must be there, and one that is only expected need not.
    has_text, has_title = source.text_field in source.columns, source.title_field in source.columns
    return replace(
        found,
        text_field=source.text_field if has_text else None,
        title_field=source.title_field if has_title else options.title_field,
    )


def _item(row) -> Item:
    if isinstance(row, Row):
        document = row.document
        fields = Fields(document.id, document.text, document.title, dict(document.metadata))
        return Item(row.location.line, row.raw, fields, "")
    return Item(row.location.line, b"".join(row.raw), None, row.reason)


def _ended(raw: bytes) -> bytes:
    return raw if raw.endswith(b"\n") else raw + b"\n"
