"""The page of messages quotes what the code says."""

import ast
import re

from docs_pages import ROOT

PAGE = ROOT / "docs" / "how-to" / "troubleshooting.md"
CODE = ("mvindex", "connectors/mvindex_connectors")
# Said by the operating system.
FOREIGN = ("No space left on device",)


def messages():
    """Return all texts of the code; of an f-string its constant parts, in order."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    yield "…".join(part.value for part in node.values if isinstance(part, ast.Constant))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_every_message_of_the_page_is_one_of_the_code():
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    quoted = [row for row in rows if " " in row and not row.startswith("exact")]
    assert len(quoted) >= 15
    said = "\n".join(messages())
    parts = [part.strip() for row in quoted for part in row.split("…") if part.strip() not in FOREIGN]
    assert [part for part in parts if part and part not in said] == []
