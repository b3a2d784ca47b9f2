"""Parquet corpora: changed bytes, and made tables of all kinds of columns, against pyarrow's own reading."""

import datetime
import io
import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz_parts.corpus_oracle import Fields, Unsure, plain_json
from fuzz_parts.target import Choices, Limits, require
from mvindex.corpus import CorpusOptions, Row, open_corpus
from mvindex.errors import CorpusError

_IDS = ("1", "2", "", None, "é", "x" * 2000, "a\0b", 7, -1, 2**62)
_TEXTS = ("a cat", "", None, "é\n\t", "b" * 300, "x\0", " ", '"quoted"')
_COLUMNS = {
    "int": (pa.int64(), [1, None, -5, 2**62]),
    "float": (pa.float64(), [0.5, None, float("nan"), float("inf"), -0.0]),
    "bool": (pa.bool_(), [True, None, False]),
    "list": (pa.list_(pa.string()), [["a"], None, [], [None, "b"]]),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), [{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
    "metadata": (pa.struct([("y", pa.int16())]), [{"y": 3}, None]),
    "vector": (pa.list_(pa.float32()), [[0.5, 1.0], None]),
    "bytes": (pa.binary(), [b"\xff", None]),
    "time": (pa.timestamp("us"), [0, None]),
    "words": (pa.dictionary(pa.int8(), pa.string()), ["en", None, "de"]),
    "nothing": (pa.null(), [None]),
}
_CODECS = ("none", "snappy", "gzip", "zstd")


def open_target(name: str, folder: Path):
    return CorpusParquet(folder)


class CorpusParquet(Limits):
    """A Parquet corpus: the input is the file, or after a zero byte what a table is made from."""

    name = "corpus-parquet"
    refusals = (CorpusError,)
    # A page says in 31 bits how large it is, and Arrow believes it: up to 2 GiB, which nobody can limit from outside.
    extra_mib = 2304
    tokens = (b"PAR1", b"id", b"text", b"title", b"\x15\x00", b"\x15\x04", b"\x19\x4c", b"\x1c\x15", b"\x18\x04text",
              b"\x15\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self._path = folder / "corpus.parquet"
        pa.set_memory_pool(pa.system_memory_pool())
        pa.set_cpu_count(1)

    def seeds(self) -> list[bytes]:
        made = [bytes([0, 4, *(number * step % 256 for number in range(40))]) for step in (1, 3, 7, 11, 31)]
        return made + [_file(Choices(choices[1:])) for choices in made]

    def check(self, data: bytes) -> None:
        is_made = data[:1] == b"\0"
        self._path.write_bytes(_file(Choices(data[1:])) if is_made else data)
        items = []
        with open_corpus(str(self._path), CorpusOptions(max_row_bytes=1000)) as corpus:
            for row in corpus:
                items.append((row.location.line, _fields(row), row.raw))
        require([line for line, _, _ in items] == list(range(1, len(items) + 1)), "rows", items)
        if is_made:
            self._check_rows(items, corpus.source)

    def _check_rows(self, items, source) -> None:
        """Check that each row has what pyarrow finds in it, or is bad as a JSON row would be."""
        table = pq.read_table(self._path, columns=[name for name in source.columns if name not in source.left_out])
        require(table.num_rows == len(items), table.num_rows, "rows, of which were read", len(items))
        for (number, found, raw), fields in zip(items, table.to_pylist(), strict=True):
            line = raw if found else b"".join(raw)
            if len(line) > 1001:
                require(found is None, "a row of over 1,000 bytes:", found)
                continue
            fields = {name: _as_json(value) for name, value in fields.items()}
            written = json.dumps(fields, ensure_ascii=False).encode() + b"\n"
            require(line == written, "the bytes of the row are", line, "wanted", written)
            try:
                require(plain_json(written, source, number) == found, "row", found, "is", fields)
            except Unsure:
                continue


def _as_json(value):
    """Return a value as JSON has it: dates are texts, NaN is null, and a struct has no key without a value."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, list):
        return [_as_json(own) for own in value]
    if isinstance(value, dict):
        return {key: _as_json(own) for key, own in value.items() if own is not None}
    return value.isoformat() if isinstance(value, datetime.date) else value


def _fields(row) -> Fields | None:
    if not isinstance(row, Row):
        return None
    document = row.document
    return Fields(document.id, document.text, document.title, dict(document.metadata))


def _file(choices: Choices) -> bytes:
    """Return a Parquet file of the columns, rows and settings chosen."""
    num_rows = choices.below(6)
    ids = [choices.one_of(_IDS) for _ in range(num_rows)]
    columns = {"id": pa.array([value if value is None else str(value) for value in ids])}
    if num_rows and choices.below(4) == 0:
        columns["id"] = pa.array([value if isinstance(value, int) else 3 for value in ids])
    if choices.below(8):
        columns["text"] = pa.array([choices.one_of(_TEXTS) for _ in range(num_rows)], pa.string())
    if choices.below(2):
        columns["title"] = pa.array([choices.one_of(_TEXTS) for _ in range(num_rows)], pa.large_string())
    for name, (kind, values) in _COLUMNS.items():
        if choices.below(3) == 0:
            columns[name] = pa.array([choices.one_of(values) for _ in range(num_rows)], kind)
    file = io.BytesIO()
    pq.write_table(
        pa.table(columns), file, compression=choices.one_of(_CODECS), row_group_size=1 + choices.below(4),
        use_dictionary=bool(choices.below(2)), write_page_checksum=bool(choices.below(2)),
        data_page_version=choices.one_of(("1.0", "2.0")), store_schema=bool(choices.below(2)),
    )  # fmt: skip
    return file.getvalue()
