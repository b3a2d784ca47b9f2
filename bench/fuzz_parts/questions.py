"""Question files: each format given, and found from the first line, against a plain reading line by line.

The first byte of an input says in which format the rest is read, and whether also compressed.
"""

import ast
import csv
import gzip
import io
import json
import unicodedata
import warnings
from pathlib import Path

from fuzz_parts.target import Limits, require
from mvindex.errors import CorpusError
from mvindex.measure.questions import Question, QuestionFormat, read_questions

_FORMATS = (None, *QuestionFormat)
_SEEDS = (
    b'{"question": "who?", "answers": ["a", "b"], "id": "q1", "passage_id": 7}\n{"question": "what?", "answer": "x"}\n',
    b'{"_id": "1", "text": "who?", "answer": "yes"}\n\n{"_id": 2, "text": "\\u00e9?", "answers": []}\n',
    b"who was it?\t['Bob', \"O'Neil\"]\r\nwhat?\t['a\\'b', 'c\\\\d', '\\x41', '\\d']\n",
    b'"who ""was"" it?"\t"[""Bob"", \'x\']"\nwhy?\t[]\n',
    b"qid\tquestion\n12\twho was it?\n13\twhat\n",
    b"\xef\xbb\xbf1\twho?\n\n2\twhat is it?",
    b"who was it?\n\nwhat?\r\n",
    b'{"question": "a", "answers": "b"}\n{"question": "c", "answers": [1]}\n',
)
_DEEP = 100


def open_target(name: str, folder: Path):
    return Questions(folder)


class Questions(Limits):
    """A question file read to its end or its first bad line."""

    name = "questions"
    refusals = (CorpusError,)
    extra_mib = 32
    tokens = (b"\t", b"\n", b"\r\n", b'"', b"'", b"[", b"]", b", ", b"\\", b"\\x4", b"\\N{BULLET}", b"['a']", b'["b"]',
              b"{", b"}", b'"question": "x"', b'"text": "y"', b'"answers": ["z"]', b'"answer": null', b'"id": 5',
              b'"passage_id": "p"', b"\0", b"\\ud800", b"\\u0000", b"qid\t", b"id\t", b"\xff", b"\xef\xbb\xbf", b"\\8",
              b"u'a'", b"'a' 'b'", b"\xc2\x85", b"\x0c", b"\xe2\x80\x8b", b"[[", b"\\\n", b"'\\u12'")  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self._path = folder / "questions"

    def seeds(self) -> list[bytes]:
        return [bytes([way]) + seed for seed in _SEEDS for way in range(len(_FORMATS))]

    def check(self, data: bytes) -> None:
        way, content = data[0] if data else 0, data[1:]
        given = _FORMATS[way % 8 % len(_FORMATS)]
        found, error = self._read(content, given)
        if given is None:
            ways = [self._read(content, each) for each in QuestionFormat] if found else []
            require(not found or (found, f"{error}") in [(each, f"{err}") for each, err in ways], "found", found)
        else:
            self._check_lines(content, given, found, error)
        if way & 128 and not content.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")) and content[1:4] != b"\x2a\x4d\x18":
            again, other = self._read(gzip.compress(content, 1), given)
            require((again, f"{other}") == (found, f"{error}"), "compressed:", again, f"{other}", "plain:", found)
        if error is not None:
            raise error

    def _read(self, content: bytes, given) -> tuple[list[Question], CorpusError | None]:
        self._path.write_bytes(content)
        found: list[Question] = []
        try:
            found.extend(read_questions([str(self._path)], given))
        except CorpusError as err:
            return found, err
        return found, None

    def _check_lines(self, content: bytes, given, found, error) -> None:
        lines = io.BytesIO(content.removeprefix(b"\xef\xbb\xbf")).readlines()
        visible = [(number, line) for number, line in enumerate(lines, start=1) if not _is_blank(line)]
        if given is QuestionFormat.TSV and visible and _is_header(_text(visible[0][1])):
            visible.pop(0)
        wanted = [_plain(line, number, given) for number, line in visible[: len(found) + 1]]
        require(len(wanted) >= len(found), "more questions than lines:", found)
        for question, expected in zip(found, wanted, strict=False):
            require(expected in (question, ...), "read", question, "wanted", expected)
        left = wanted[len(found) :]
        if error is None:
            require(bool(found) and not left, "not read:", visible[len(found) :])
        elif found or left:
            is_bad = not left or left[0] in (None, ...) or left[0].id in {question.id for question in found}
            require(is_bad or not _is_plain(visible[len(found)][1], given), "refused:", visible[len(found)], f"{error}")


def _is_plain(line: bytes, given) -> bool:
    """Return whether a right line must be taken; of Python's literals only those that Python writes."""
    if given is not QuestionFormat.DPR:
        return True
    answers = _csv_cell(line.decode().split("\t")[1].strip())
    return repr(_literal_texts(answers)) == answers


def _is_blank(line: bytes) -> bool:
    return not line.decode(errors="replace").strip()


def _is_header(text: str | None) -> bool:
    return text is not None and text.split("\t")[0].lower() in ("id", "qid", "query_id", "query-id")


def _text(line: bytes) -> str | None:
    """Return the line without its end; None where it is none of a text file."""
    try:
        text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _plain(line: bytes, number: int, given: QuestionFormat):
    """Return the question of a line; None where it has none, ... where this reader cannot tell."""
    text = _text(line)
    if text is None:
        return None
    return {
        QuestionFormat.JSONL: _plain_json, QuestionFormat.DPR: _plain_dpr, QuestionFormat.TSV: _plain_tsv,
        QuestionFormat.TEXT: lambda text, number: _question(str(number), text.strip()),
    }[given](text, number)  # fmt: skip


def _plain_json(text: str, number: int):
    if text.count("[") + text.count("{") > _DEEP:
        return ...
    try:
        row = json.loads(text)
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    doc_id, passage = (row.get(name) for name in ("id", "passage_id"))
    doc_id = row.get("_id") if doc_id is None else doc_id
    ids = [str(value) if type(value) is int else value for value in (doc_id, passage)]
    answers = row["answers"] if "answers" in row else row.get("answer") if "question" in row else None
    answers = [answers] if isinstance(answers, str) else answers
    if not all(value is None or (isinstance(value, str) and _is_visible(value)) for value in ids):
        return None
    if not (answers is None or (isinstance(answers, list) and all(map(_is_text, answers)))):
        return None
    question = row["question"] if "question" in row else row.get("text")
    return _question(ids[0] or str(number), question, tuple(answers or ()) or None, ids[1])


def _literal_texts(text: str) -> list | None:
    """Return the strings of a list that is written as Python writes it; None for anything else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsed = ast.parse(text.lstrip(" \t"), mode="eval").body
    if not isinstance(parsed, ast.List) or not all(isinstance(item, ast.Constant) for item in parsed.elts):
        return None
    return [item.value for item in parsed.elts]


def _plain_dpr(text: str, number: int):
    cells = text.split("\t")
    if len(cells) != 2:
        return None
    try:
        answers = _literal_texts(_csv_cell(cells[1].strip()))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    if answers is None or not all(map(_is_text, answers)):
        return None
    return _question(str(number), _csv_cell(cells[0]), tuple(answers) or None)


def _plain_tsv(text: str, number: int):
    doc_id, *rest = text.split("\t")
    return _question(doc_id, rest[0]) if len(rest) == 1 and doc_id.split() == [doc_id] else None


def _csv_cell(cell: str) -> str:
    """Return the cell as csv reads it, where its quotes close at its end; else unchanged."""
    if not cell.startswith('"') or "\r" in cell:
        return cell
    try:
        [row] = csv.reader([cell], delimiter="\t", strict=True)
    except (csv.Error, ValueError):
        return cell
    return row[0]


def _question(doc_id, text, answers=None, passage=None):
    is_good = _is_text(text) and _is_visible(text)
    return Question(doc_id, text, answers, passage) if is_good else None


def _is_text(value) -> bool:
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)


def _is_visible(value: str) -> bool:
    return _is_text(value) and any(unicodedata.category(char)[0] not in "ZC" for char in value)
