"""Texts of one repeated piece, which a scanner that looks again at what it has seen takes too long for."""

ALPHABETS = {
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
    "bars": "|",
    "rows": "a | b\n",
    "list items": "- a\n",
    "questions": "Q: a?\n",
    "cells": "a: b; ",
    "tags": "<a ",
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
FRAMES = (("", ""), ("# a", "b"))


def texts(length: int) -> dict[str, str]:
    """Return a text of each alphabet in each frame, of about this length."""
    return {
        f"{name}, {before or 'bare'}": before + piece * (length // len(piece)) + after
        for name, piece in ALPHABETS.items()
        for before, after in FRAMES
    }
