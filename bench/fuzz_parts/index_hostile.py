"""Index directories made up by somebody: absurd values with every checksum right. They are answered or refused, in
values of the right types; nothing outside the directory is touched, and nothing large is asked for.

An input draws the index, then edits (_EDITS), one after the other until it is spent.
"""  # noqa: D205, D400 - the first sentence takes two lines

import copy
import json
import math
import os
import shutil
import sqlite3
import zlib
from pathlib import Path

import numpy as np

import mvindex
from fuzz_parts.forged import Forged, put_views, records_of, taken_apart
from fuzz_parts.index_answers import ALWAYS, SEARCHES, bare, refusals
from fuzz_parts.index_kits import Kit, make_kits, quick_engines
from fuzz_parts.opened_files import only_below
from fuzz_parts.target import Choices, Limits, require
from mvindex.errors import MvindexError

_NUMBERS = (-1, 0, 1, 2, 3, 7, 8, 255, 4096, 65536, 1 << 20, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 44, 1 << 61,
            (1 << 63) - 1, -(1 << 63), -(1 << 40))  # fmt: skip
_FLOATS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-320, 1e308, -1e308, 0.5, 65504.0)
_TEXTS = ("", "a", "../outside", "/etc/passwd", "\0", "a\nb", "\x1b[2J", "é" * 300, "fp16", "fp32", "exact", "flat",
          "hnsw", "x" * 5000, "engine-flat-000005", "engine-flat-../../x", "rows-000001.bin", "|O", "<i4", "<f8",
          "index.faiss", "日本-2", "größe-1", "\ud7ff\ue000")  # fmt: skip
_DEEP = {depth: json.loads("[" * depth + "]" * depth) for depth in (1, 50, 200)}
_ODD = (None, True, False, {}, [], [1], {"a": 1}, {"count": -1, "checksum": "x"}, {"kind": "minilm"}, *_DEEP.values())
_RAW = (None, b"", b"\xff\xfe", b"\0" * 8, b"\xff\xff\xff\x7f" * 2, b"\x80\0\0\0" * 4, 0.5, math.inf, "x", *_NUMBERS)
_JSON = ("{}", "null", "[]", "[1]", "", "{", '"x"', "NaN", '{"a": NaN}', '{"a": 1e999}',
         '{"a":' * 3000 + "1" + "}" * 3000, "[" * 200_000, "9" * 5000, '{"a": ' + "9" * 5000 + "}",
         '{"group": 1, "group": 2}', '{"": {"": 0}}', '{"a": "\\ud800"}', '{"group": 3}', "{'a': 1}", "\0", b"{}",
         1, 1.5)  # fmt: skip
_SQL = (
    "CREATE TABLE extra(x)", "CREATE VIEW seen AS SELECT * FROM documents", "DROP INDEX documents_live",
    "DROP INDEX documents_deleted", "CREATE TRIGGER t AFTER INSERT ON texts BEGIN DELETE FROM texts; END",
    "PRAGMA application_id=7", "PRAGMA user_version=99", "DELETE FROM blocks", "DELETE FROM files", "DELETE FROM texts",
    "DELETE FROM settings", "UPDATE settings SET value = x'ff'", "UPDATE settings SET value = NULL WHERE 0",
    "INSERT INTO settings SELECT 'x' || value, value FROM json_each('[1,2,3,4,5,6,7,8,9]')",
    "UPDATE texts SET text = zeroblob(900000)", "UPDATE documents SET id = x'ff00'", "DELETE FROM metadata",
    "UPDATE documents SET id = 7 WHERE doc_row = 1", "UPDATE blocks SET checksum = 'x'", "DELETE FROM documents",
    "UPDATE files SET size_bytes = 'x'", "UPDATE files SET size_bytes = 1.5", "UPDATE blocks SET block = block + 1000",
    "WITH RECURSIVE c(n) AS (SELECT 5 UNION ALL SELECT n + 1 FROM c WHERE n < 300) "
    "INSERT INTO blocks SELECT name, n, n FROM c, files",
    "UPDATE documents SET alive = 2", "UPDATE documents SET alive = 'x'", "UPDATE settings SET value = '1' || value",
    "CREATE INDEX metadata_json ON metadata(json)", "ALTER TABLE texts ADD COLUMN more",
)  # fmt: skip
_PLACES = ("current.json", "writer.lock", "generation-000001/acknowledged", "generation-000001/rows-000001.bin",
           "generation-000001/catalog.sqlite", "generation-000001/catalog.sqlite-wal",
           "generation-000001/catalog.sqlite-journal", "generation-000001/catalog.sqlite-shm", "generation-000001",
           "generation-000002", "unfinished-x", "gone-generation-x", "generation-000001/engine-flat-000005",
           "generation-000001/engine-flat-000005/index.faiss", "generation-000001/engine-x",
           "generation-000001/rows-000001.bin.new", "current.json.new", "generation-000001/gone-engine")  # fmt: skip
_ENGINE = ("kind", "directory", "checksums", "built_rows", "settings")
_ENGINE_SETTINGS = ("max_norm", "num_views", "built_rows", "faiss")
_FOLLOWED = 4


def open_target(name: str, folder: Path):
    return IndexHostile(folder)


class IndexHostile(Limits):
    """A made-up index: asked all questions, verified; some are salvaged, repaired, written to."""

    name = "index-hostile"
    refusals = (MvindexError,)
    extra_mib = 96
    seconds = 10.0
    tokens = tuple(bytes([number]) * 3 for number in range(12))

    def __init__(self, folder: Path) -> None:
        self._box, self._outside = folder / "box", folder / "outside"
        self._box.mkdir()
        self._outside.mkdir()
        for name in ("secret", *map(os.path.basename, _PLACES)):
            (self._outside / name).write_bytes(b"secret")
        self._kits = [(kit, taken_apart(kit)) for name, kit in make_kits(self._box).items() if name != "log"]
        os.environ["SQLITE_TMPDIR"] = str(self._box)

    def seeds(self) -> list[bytes]:
        steps = [bytes([kit, 0, edit, *(n * step % 251 for n in range(6))]) for kit in range(2)
                 for edit in range(len(_EDITS)) for step in (1, 83, 201)]  # fmt: skip
        entry = _EDITS.index(_edit_entry)
        steps += [bytes([place % 2, 0, entry, place, place % 2]) for place in range(len(_PLACES))]
        return steps + [bytes([0, 0, 2, row, column, 3, number]) for row in range(2) for column in range(7)
                        for number in range(0, 19, 3)]  # fmt: skip

    def check(self, data: bytes) -> None:
        choices = Choices(data[:64])
        kit, sound = choices.one_of(self._kits)
        forged = copy.deepcopy(sound)
        is_right, entries = choices.below(8) != 7, []
        while not choices.is_spent:
            choices.one_of(_EDITS)(forged, choices, entries)
        try:
            try:
                forged.write(kit, is_right)
            except (ValueError, OverflowError, TypeError, AttributeError, KeyError, sqlite3.Error):
                return  # SQLite or JSON cannot hold it
            for place, kind in entries:
                self._replace(kit.path / place, kind)
            self._check(kit, data)
        finally:
            kit.restore()

    def _check(self, kit: Kit, data: bytes) -> None:
        before = sorted((entry.name, entry.stat().st_mtime_ns) for entry in os.scandir(self._outside))
        with only_below(self._box, follows_links=False), quick_engines():
            found = _asked(kit.path)
            _quietly(lambda: mvindex.verify(kit.path))
            if zlib.crc32(data) % _FOLLOWED == 0:
                self._follow(kit)
        after = sorted((entry.name, entry.stat().st_mtime_ns) for entry in os.scandir(self._outside))
        require(before == after, "outside:", after)
        if refused := refusals(found):
            raise refused[0]

    def _follow(self, kit: Kit) -> None:
        """Check that writes stay inside, too."""
        for name, call in (("saved", mvindex.salvage), ("copy", _snapshot)):
            target = self._box / f"{name}.mvx"
            _quietly(lambda call=call, target=target: call(kit.path, target))
            shutil.rmtree(target, ignore_errors=True)
        for call in (mvindex.repair, _write, _compact):
            _quietly(lambda call=call: call(kit.path))

    def _replace(self, path: Path, kind: int) -> None:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        if not path.parent.is_dir():
            return
        if kind == 0:
            path.symlink_to(self._outside / path.name)
        elif kind == 1:
            path.symlink_to(self._outside)
        elif kind == 2:
            path.mkdir()
        elif kind == 3:
            os.mkfifo(path)
        elif kind == 4:
            path.symlink_to(path)
        elif kind == 5:
            path.write_bytes(b"\0" * 600)


def _asked(path: Path) -> dict:
    """Return answers and refusals; WrongAnswer where an answer is not of its declared type."""
    try:
        index = mvindex.open(path)
    except MvindexError as err:
        return {"open": bare(err)}
    with index:
        questions = ALWAYS | SEARCHES | {"types": _check_types, "info": lambda index: index.info()}
        found = {}
        for name, question in questions.items():
            try:
                found[name] = question(index)
            except MvindexError as err:
                found[name] = bare(err)
        return found


def _check_types(index: mvindex.Index) -> None:
    """Raise WrongAnswer for a document that has anything but texts and a mapping, or a score that is no number."""
    for document in index:
        _check_texts(document.id, document.title, document.text)
        require(isinstance(document.metadata, dict), "metadata is", document.metadata)
    dim = index.dim or 8
    if dim > 4096:
        return
    for hit in index.search(np.ones(dim, dtype=np.float32), top_k=3).hits:
        _check_texts(hit.id, hit.title, hit.text, hit.snippet or "")
        require(math.isfinite(hit.score) and hit.slot >= 0, "score and slot are", hit.score, hit.slot)


def _check_texts(*texts: object) -> None:
    require(all(isinstance(text, str) for text in texts), "texts are", texts)


def _quietly(call) -> None:
    try:
        call()
    except MvindexError:
        return


def _snapshot(path: Path, target: Path) -> None:
    with mvindex.open(path) as index:
        index.admin.snapshot(target)


def _write(path: Path) -> None:
    with mvindex.open(path) as index:
        index.update("日本-2", metadata={"group": 1})
        index.delete(filter={"group": 2})
        index.admin.build(kind="flat")


def _compact(path: Path) -> None:
    with mvindex.open(path) as index:
        index.admin.compact()


def _value(choices: Choices):
    return choices.one_of(choices.one_of((_NUMBERS, _FLOATS, _TEXTS, _ODD)))


def _edit_setting(forged: Forged, choices: Choices, entries: list) -> None:
    names = [*sorted(forged.settings), "deleted", "ids", "temperature", "prune_views", "engine", "dim", "x"]
    forged.settings[choices.one_of(names)] = _value(choices)


def _edit_engine(forged: Forged, choices: Choices, entries: list) -> None:
    record = forged.settings.get("engine")
    if not isinstance(record, dict):
        forged.settings["engine"] = {
            "kind": "flat", "directory": "engine-flat-000005", "checksums": {}, "built_rows": 1,
            "settings": {"max_norm": 1.0, "built_rows": 1},
        }  # fmt: skip
        return
    if choices.below(3) == 0 and isinstance(record.get("checksums"), dict):
        record["checksums"][choices.one_of(_TEXTS)] = choices.one_of(_TEXTS)
    elif choices.below(2) and isinstance(record.get("settings"), dict):
        record["settings"][choices.one_of(_ENGINE_SETTINGS)] = _value(choices)
    else:
        record[choices.one_of(_ENGINE)] = _value(choices)


def _edit_row(table: str):
    def edit(forged: Forged, choices: Choices, entries: list) -> None:
        row = choices.one_of(forged.tables[table])
        row[choices.below(len(row))] = choices.one_of(choices.one_of((_RAW, _TEXTS, _NUMBERS)))

    return edit


def _edit_metadata(forged: Forged, choices: Choices, entries: list) -> None:
    choices.one_of(forged.tables["metadata"])[1] = choices.one_of(_JSON)


def _edit_size(forged: Forged, choices: Choices, entries: list) -> None:
    name = choices.one_of(sorted(forged.sizes))
    place = f"generation-000001/{name}"
    if choices.below(2):
        forged.sizes[name] = choices.one_of((*_NUMBERS, *(24 * number for number in range(12))))
    else:
        forged.files[place] = (forged.files[place] * 3)[: choices.below(1024)]
        forged.sizes[name] = len(forged.files[place])


def _edit_records(forged: Forged, choices: Choices, entries: list) -> None:
    [name] = [name for name in forged.files if "rows-" in name]
    records = records_of(forged.files[name])
    field = choices.one_of(records.dtype.names)
    if len(records):
        bits = np.int64(choices.one_of(_NUMBERS)).view(records.dtype[field])
        records[field][choices.below(len(records))] = bits
    forged.files[name] = records.tobytes()


def _edit_starts(forged: Forged, choices: Choices, entries: list) -> None:
    """Change where a document's views begin, or their number, in both places."""
    [name] = [name for name in forged.files if "rows-" in name]
    records, row = records_of(forged.files[name]), choices.one_of(forged.tables["documents"])
    row[3], row[4] = choices.one_of(_NUMBERS), choices.one_of(_NUMBERS)
    if isinstance(row[0], int) and 0 <= row[0] < len(records):
        records["view_start"][row[0]] = row[3]
        records["ordinal"][row[0]] = choices.one_of(_NUMBERS)
    forged.files[name] = records.tobytes()


def _edit_views(forged: Forged, choices: Choices, entries: list) -> None:
    [views] = [name for name in forged.files if "views-" in name]
    [rows] = [name for name in forged.files if "rows-" in name]
    dtype = np.dtype("<f2" if views.endswith("f16") else "<f4")
    content = forged.files[views]
    data = np.frombuffer(content[: len(content) // (8 * dtype.itemsize) * 8 * dtype.itemsize], dtype).copy()
    if len(data):
        with np.errstate(over="ignore"):
            data[choices.below(len(data))] = choices.one_of((*_FLOATS, 6e4, -6e4, 3e38))
        put_views(forged, views, rows, data.reshape(-1, 8))


def _edit_current(forged: Forged, choices: Choices, entries: list) -> None:
    forged.current[choices.one_of(("format_version", "generation", "index_id", "mvindex", "x"))] = _value(choices)


def _edit_acknowledged(forged: Forged, choices: Choices, entries: list) -> None:
    forged.acknowledged = choices.one_of((*_NUMBERS, "", "x", "9" * 5000, "٣"))


def _edit_entry(forged: Forged, choices: Choices, entries: list) -> None:
    entries.append((choices.one_of(_PLACES), choices.below(7)))


def _edit_sql(forged: Forged, choices: Choices, entries: list) -> None:
    forged.statements.append(choices.one_of(_SQL))


def _forget(forged: Forged, choices: Choices, entries: list) -> None:
    """Remove a setting; those that sum up others are made anew."""
    forged.settings.pop(
        choices.one_of(("deleted", "ids", "deleted", "ids", "version", "dim", "dtype", "encoder")), None
    )


_EDITS = (
    _edit_setting, _edit_engine, _edit_row("documents"), _edit_row("texts"), _edit_row("metadata"), _edit_metadata,
    _edit_size, _edit_records, _edit_starts, _edit_views, _edit_current, _edit_acknowledged, _edit_entry, _edit_sql,
    _forget, _edit_metadata, _edit_setting, _edit_row("documents"),
)  # fmt: skip
