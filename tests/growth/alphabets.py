"""Texts of one repeated piece, which a scanner that looks again at what it has seen takes too long for."""

import itertools
import string

_WORDS = itertools.islice(itertools.product(string.ascii_lowercase, repeat=4), 50_000)

ALPHABETS = {
    "distinct words": " ".join(map("".join, _WORDS)),
    "spaces": " ",
    "tabs": "\t",
    "no-break spaces": "\u00a0",
    "line separators": "\u2028",
    "newlines": "\n",
    "carriage returns": "\r",
    "lines of spaces": " \n",
    "indented newlines": "\n \t",
    "dots": ".",
    "dots apart": ". ",
    "marks": "?!",
    "quoted dots": '." ',
    "ellipses": "…",
    "ideographic stops": "。",
    "closed ideographic stops": "。」",
    "commas": ",",
    "commas apart": ", ",
    "ideographic commas": "、",
    "semicolons": "; ",
    "colons": ":",
    "quotes": '"',
    "apostrophes": "a'",
    "opening brackets": "[",
    "closing brackets": "]",
    "notes": ".[3]",
    "parentheses": "(",
    "braces": "{#",
    "dashes": "-",
    "dashes apart": "- ",
    "rules": "=\n",
    "stars": "*",
    "underscores": "_",
    "backticks": "`",
    "hashes": "#",
    "headings": "# a\n",
    "underlined headings": "a\n===\n",
    "tagged headings": "<h1>a</h1>",
    "tiny sections": "# a\nb\n",
    "tiny underlined sections": "a\n===\nb\n\n",
    "tiny tagged sections": "<h1>a</h1>b",
    "paragraphs": "a\n\n",
    "labels": ".. _a:\n",
    "directives": ".. note::\n\n  b\n",
    "definitions": ".. py:data:: A\n",
    "literal blocks": "a::\n\n  b\n",
    "fences": "```\na\n",
    "commands": "$ a\n",
    "introduced lists": "A:\n\n- b\n",
    "list tables": ".. list-table::\n  :header-rows: 1\n\n  * - a\n    - b\n",
    "simple tables": "== ==\na  b\n== ==\n",
    "bars": "|",
    "rows": "a | b\n",
    "list items": "- a\n",
    "questions": "Q: a?\n",
    "cells": "a: b; ",
    "tags": "<a ",
    "terms": "<dt>a<dd>b",
    "digits": "1",
    "numbers": "1.1,",
    "letters": "a",
    "initials": "A.\t",
    "words": "word ",
    "sentences": "It rains. ",
    "combining marks": "\u0301",
    "zero-width spaces": "\u200b",
    "joiners": "क\u200d",
    "ideographs": "日",
    "Thai": "ก",
    "Hebrew words": "א ",
    "emoji": "\U0001f600",
    "alternatives": " and or ",
}
# What stands before and after the repeated piece.
FRAMES = (("", ""), ("# a", "b"), ("\n# a\n", "\n"))


def texts(length: int) -> dict[str, str]:
    """Return a text of each alphabet in each frame, of about this length."""
    return {
        f"{name}, {before or 'bare'}": before + (piece * (length // len(piece)) or piece[:length]) + after
        for name, piece in ALPHABETS.items()
        for before, after in FRAMES
    }
