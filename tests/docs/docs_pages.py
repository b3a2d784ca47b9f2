"""The pages of the docs, and every code block that they show."""

import ast
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
RUNS = ("bash", "python")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block of a page; shows: the text block right under one that runs, which is what it prints."""

    page: str
    line: int
    language: str
    code: str
    shows: str | None = None

    @property
    def place(self):
        return f"{self.page}:{self.line}"


@cache
def tokens_of(page):
    return MarkdownIt().enable("table").parse((ROOT / page).read_text(encoding="utf-8"))


def language_of(token):
    """Return the fence's language; for an indented block, Python if it parses as Python, else the shell."""
    if token.type == "fence":
        return token.info.strip()
    try:
        ast.parse(token.content)
    except SyntaxError:
        return "bash"
    return "python"


@cache
def blocks_of(page):
    """The code blocks of a page, in order."""
    found = []
    is_right_above = False
    for token in tokens_of(page):
        if token.type not in ("fence", "code_block"):
            is_right_above = False
            continue
        block = Block(page=page, line=token.map[0] + 1, language=language_of(token), code=token.content)
        if is_right_above and block.language == "text":
            found[-1] = replace(found[-1], shows=block.code)
        else:
            found.append(block)
        is_right_above = block.language in RUNS
    return tuple(found)
