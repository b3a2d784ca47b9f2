"""Readers of question files and of relevance judgements (qrels); errors name path and line."""

from __future__ import annotations

import ast
import enum
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mvindex.corpus.inputs import read_lines, stream_name
from mvindex.errors import CorpusError
from mvindex.records import has_visible

# A longer list of answers is treated as damage and never reaches the literal parser.
MAX_LIST_CHARS = 1 << 20

QUOTED_CELL = re.compile(r'"([^"]*(?:""[^"]*)*)"')
STRING = r"""(?:'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")"""
LIST_OF_STRINGS = re.compile(rf"\[\s*(?:{STRING}\s*(?:,\s*{STRING}\s*)*(?:,\s*)?)?\]")
ESCAPE = re.compile(r"\\(.)")
KNOWN_ESCAPES = frozenset("\\'\"abfnrtvxNuU01234567")
NO_TEXT = re.compile("[\0\ud800-\udfff]")

TSV_HEADER_IDS = frozenset({"id", "qid", "query_id", "query-id"})
QRELS_HEADER = ["query-id", "corpus-id", "score"]
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")


class QuestionFormat(enum.Enum):
    """Format of a question file; all but TEXT are detected from the first line."""

    JSONL = "jsonl"
    DPR = "dpr"
    TSV = "tsv"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its accepted answers and the id of its gold document; None where they are not known."""

    id: str
    text: str
    answers: tuple[str, ...] | None = None
    passage_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    """A line: its text, its place for messages, and its number among the lines of all files."""

    text: str
    place: str
    number: int


def read_questions(paths: Sequence[str], format: QuestionFormat | None = None) -> Iterator[Question]:
    """Yield the questions of the files in order.

    JSONL: `question` or `text`; optional `id` or `_id`, `answers` (or `answer` next to `question`; a list or one
    string) and `passage_id`. DPR: question, tab, Python list of strings. TSV: id, tab, question. TEXT: one question
    per line. A question without id gets the number of its line; a second file continues the count. An empty list of
    answers means that none is known.

    Args:
        paths: Question files; `-` is stdin.
        format: Format of all files; None detects it from the first line of each file.

    Raises:
        CorpusError: A line is not a question, an id occurs twice, or a file has no questions.

    """
    seen: dict[str, int] = {}
    starts: list[tuple[int, str]] = []
    last = 0
    for path in paths:
        starts.append((last, stream_name(path)))
        for question, line in _read_file(path, format, last):
            last = line.number
            if question.id in seen:
                raise CorpusError(
                    f"{line.place}: expected a unique id, got {question.id!r} again, which is at "
                    f"{_place(seen[question.id], starts)}"
                )
            seen[question.id] = last
            yield question
        if last == starts[-1][0]:
            raise CorpusError(f"{stream_name(path)}: expected one question per line, got none")


def read_qrels(path: str) -> dict[str, dict[str, int]]:
    """Read a file of relevance judgements.

    Three columns separated by tabs are BEIR's (`query-id corpus-id score`, with or without a header); four separated by
    white space are TREC's (`qid 0 docid grade`). The first line decides.

    Returns:
        Question id to document id to grade; 0 or less is not relevant.

    Raises:
        CorpusError: A line has another shape, a grade is not a whole number, a document is judged twice for a question,
            or there is no judgement.

    """
    qrels: dict[str, dict[str, int]] = {}
    separator: str | None = "\t"
    for line in visible_lines(path):
        columns = line.text.split("\t")
        if not qrels:
            if [column.strip() for column in columns] == QRELS_HEADER:
                continue
            separator = "\t" if len(columns) == 3 else None
        question_id, doc_id, grade = _parse_judgement(line, separator)
        if doc_id in qrels.setdefault(question_id, {}):
            raise CorpusError(
                f"{line.place}: expected one grade for each document, got document {doc_id!r} twice for question "
                f"{question_id!r}"
            )
        qrels[question_id][doc_id] = grade
    if not qrels:
        raise CorpusError(f"{stream_name(path)}: expected lines of `query-id corpus-id score`, got no judgement")
    return qrels


def _read_file(path: str, format: QuestionFormat | None, lines_before: int) -> Iterator[tuple[Question, _Line]]:
    parse: Callable[[_Line], Question] | None = None
    for line in visible_lines(path, lines_before):
        if parse is None:
            parse = PARSERS[format or _detect(line)]
            if parse is _parse_tsv and line.text.partition("\t")[0].lower() in TSV_HEADER_IDS:
                continue
        yield parse(line), line


def visible_lines(path: str, lines_before: int = 0) -> Iterator[_Line]:
    """Yield the lines of a file that hold visible text, counted after `lines_before` of other files."""
    name = stream_name(path)
    for number, text in read_lines(path):
        if text.strip():
            yield _Line(text, f"{name}:{number}", lines_before + number)


def _place(number: int, starts: list[tuple[int, str]]) -> str:
    start, name = next(entry for entry in reversed(starts) if entry[0] < number)
    return f"{name}:{number - start}"


def _detect(line: _Line) -> QuestionFormat:
    if line.text.lstrip().startswith("{"):
        return QuestionFormat.JSONL
    if "\t" not in line.text:
        raise CorpusError(
            f"{line.place}: expected a JSON object, `question<TAB>[answers]` or `id<TAB>question`, got "
            f"{line.text[:40]!r}. A file of one question per line needs the format `text`"
        )
    last = _without_quotes(line.text.split("\t")[-1].strip())
    return QuestionFormat.DPR if last.startswith("[") and last.endswith("]") else QuestionFormat.TSV


def _parse_jsonl(line: _Line) -> Question:
    row = _load_object(line)
    text_field = next((name for name in ("question", "text") if name in row), None)
    if text_field is None:
        raise CorpusError(f'{line.place}: expected a field "question" or "text", got {", ".join(row) or "no fields"}')
    # Next to `text`, `answer` is the label of another task (yes, no, maybe), not a string to search for.
    answers = row.get("answers", row.get("answer") if text_field == "question" else None)
    return Question(
        id=_read_id(row, ("id", "_id"), line.place) or str(line.number),
        text=_check_visible(row[text_field], text_field, line.place),
        answers=_check_answers(answers, line.place),
        passage_id=_read_id(row, ("passage_id",), line.place),
    )


def _parse_dpr(line: _Line) -> Question:
    text, answers = _two_columns(line, "`question<TAB>[answers]`")
    return Question(
        id=str(line.number),
        text=_check_visible(_without_quotes(text), "question", line.place),
        answers=_check_answers(_parse_list(_without_quotes(answers.strip()), line.place), line.place),
    )


def _parse_tsv(line: _Line) -> Question:
    question_id, text = _two_columns(line, "`id<TAB>question`")
    if question_id.split() != [question_id]:
        raise CorpusError(
            f"{line.place}: expected an id without white space, got {question_id[:60]!r}. Is the order "
            "`id<TAB>question`?"
        )
    return Question(question_id, _check_visible(text, "question", line.place))


def _parse_text(line: _Line) -> Question:
    return Question(str(line.number), _check_visible(line.text.strip(), "question", line.place))


PARSERS: Mapping[QuestionFormat, Callable[[_Line], Question]] = {
    QuestionFormat.JSONL: _parse_jsonl,
    QuestionFormat.DPR: _parse_dpr,
    QuestionFormat.TSV: _parse_tsv,
    QuestionFormat.TEXT: _parse_text,
}


def _parse_judgement(line: _Line, separator: str | None) -> tuple[str, str, int]:
    columns = [column.strip() for column in line.text.split(separator)]
    expected = 3 if separator else 4
    if len(columns) != expected or not all(columns):
        raise CorpusError(
            f"{line.place}: expected `query-id<TAB>corpus-id<TAB>score` or `qid 0 docid grade` in every line, got "
            f"{len(columns)} columns in {line.text[:60]!r}"
        )
    if not WHOLE_NUMBER.fullmatch(columns[-1]):
        raise CorpusError(f"{line.place}: grade: expected a whole number, got {columns[-1][:40]!r}")
    return columns[0], columns[expected - 2], int(columns[-1])


def _load_object(line: _Line) -> dict[str, Any]:
    try:
        row = json.loads(line.text)
    except (ValueError, RecursionError) as err:
        raise CorpusError(f"{line.place}: expected one JSON object per line, got {line.text[:40]!r}: {err}") from err
    if not isinstance(row, dict):
        raise CorpusError(f"{line.place}: expected a JSON object, got {type(row).__name__}")
    return row


def _two_columns(line: _Line, expected: str) -> tuple[str, str]:
    columns = line.text.split("\t")
    if len(columns) != 2:
        raise CorpusError(
            f"{line.place}: expected two columns separated by a tab, {expected}, got {len(columns)} columns"
        )
    return columns[0], columns[1]


def _without_quotes(cell: str) -> str:
    """Return the cell as csv reads it: a quoted cell without its quotes, with doubled quotes made single."""
    quoted = QUOTED_CELL.fullmatch(cell)
    return quoted[1].replace('""', '"') if quoted else cell


def _parse_list(text: str, place: str) -> list[str]:
    """Return the strings of a Python list literal; only a flat list of strings reaches the literal parser."""
    if len(text) > MAX_LIST_CHARS:
        raise CorpusError(f"{place}: answers: expected at most {MAX_LIST_CHARS:,} characters, got {len(text):,}")
    if not LIST_OF_STRINGS.fullmatch(text):
        raise CorpusError(
            f"{place}: answers: expected a Python list of strings, ['one', \"two\"], got {text[:60]!r}. "
            "Give --format tsv for an id and a question a line"
        )
    try:
        answers: list[str] = ast.literal_eval(ESCAPE.sub(_keep_backslash, text))
    except (ValueError, SyntaxError, MemoryError, RecursionError) as err:
        raise CorpusError(f"{place}: answers: expected a Python list of strings, got {text[:60]!r}: {err}") from err
    return answers


def _keep_backslash(escape: re.Match[str]) -> str:
    r"""Return an escape that Python knows unchanged, another doubled: `\d` is backslash d, without a warning."""
    return escape[0] if escape[1] in KNOWN_ESCAPES else "\\" + escape[0]


def _read_id(row: Mapping[str, Any], fields: Sequence[str], place: str) -> str | None:
    field = next((name for name in fields if row.get(name) is not None), None)
    if field is None:
        return None
    value = row[field]
    return _check_visible(str(value) if type(value) is int else value, field, place)


def _check_answers(value: object, place: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    answers = [value] if isinstance(value, str) else value
    if not isinstance(answers, list):
        raise CorpusError(f"{place}: answers: expected a string or a list of strings, got {str(value)[:60]!r}")
    return tuple(_check_string(answer, "answer", place) for answer in answers) or None


def _check_visible(value: object, field: str, place: str) -> str:
    text = _check_string(value, field, place)
    if not has_visible(text):
        raise CorpusError(f'{place}: "{field}": expected visible text, got {text[:40]!r}')
    return text


def _check_string(value: object, field: str, place: str) -> str:
    if not isinstance(value, str):
        raise CorpusError(f'{place}: "{field}": expected a string, got {type(value).__name__} {str(value)[:60]!r}')
    if bad := NO_TEXT.search(value):
        raise CorpusError(f'{place}: "{field}": expected text without NUL and surrogates, got {bad[0]!r}')
    return value
