"""Count what makes pages hard to read: words, pictures, sentences over 30 words, reading ease.

    python bench/prose.py [--long] [FILE ...]
    python bench/prose.py --tiny

Without files: README.md and docs/. A sentence is one of a paragraph, list, heading or cell of a table, split by punkt;
inline code is one word, code blocks are left out. Reading ease is Flesch's (1948), over paragraphs and lists:
206.835 - 1.015 words/sentence - 84.6 syllables/word; a syllable is a group of vowels. --long lists each sentence over
30 words.
"""

import re
from pathlib import Path

import harness
from markdown_it import MarkdownIt

from mvindex.corpus.text.sentences import split_sentences

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 30
WORD = re.compile(r"[^\W_](?:[\w'’.,/-]*[^\W_])?")


def pages():
    """Return README and the pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def texts_of(path):
    """Yield the line, the text and whether it is prose of each paragraph, item, heading and cell of a page."""
    container, line = "", 1
    for token in MarkdownIt().enable("table").parse(path.read_text(encoding="utf-8")):
        if token.type.endswith("_open"):
            container = token.type
        if token.map:
            line = token.map[0] + 1
        if token.type == "inline":
            yield line, "".join(spoken(child) for child in token.children), container == "paragraph_open"


def spoken(token):
    """Return what a reader would say of a part of a text."""
    if token.type == "code_inline":
        return "code"
    if token.type in ("softbreak", "hardbreak"):
        return " "
    return "" if token.type == "image" else token.content


def long_sentences(path):
    """Yield line, number of words and text of each sentence over the limit."""
    for line, text, _ in texts_of(path):
        for start, end in split_sentences(text):
            count = len(WORD.findall(text[start:end]))
            if count > LIMIT:
                yield line, count, text[start:end]


def measure(path):
    """Return the row of a page."""
    prose = [text for _, text, is_prose in texts_of(path) if is_prose]
    words = [word for text in prose for word in WORD.findall(text)]
    sentences = sum(len(list(split_sentences(text))) for text in prose)
    syllables = sum(max(1, len(re.findall(r"[aeiouy]+", word.lower().removesuffix("e")))) for word in words)
    ease = 206.835 - 1.015 * len(words) / sentences - 84.6 * syllables / len(words) if words else 0
    return {
        "page": str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name,
        "words": sum(len(WORD.findall(text)) for _, text, _ in texts_of(path)),
        "pictures": len(re.findall(r"^!\[", path.read_text(encoding="utf-8"), re.MULTILINE)),
        "long": len(list(long_sentences(path))),
        "ease": round(ease),
    }


def main():
    """Print the table, and the long sentences where asked for."""
    parser = harness.parser(__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--long", action="store_true", help="list the sentences over 30 words")
    args = harness.parse(parser, files=[ROOT / "README.md"], long=True)
    files = [path.resolve() for path in args.files] or pages()
    rows = [measure(path) for path in files]
    numbers = {name: sum(row[name] for row in rows) for name in ("words", "pictures", "long")}
    ease = sum(row["ease"] * row["words"] for row in rows) / max(1, numbers["words"])
    harness.print_table([*rows[0]], [*rows, {"page": "all", **numbers, "ease": round(ease)}])
    for path in files if args.long else ():
        for line, count, sentence in long_sentences(path):
            print(f"{path}:{line}: {count} words: {sentence}")


if __name__ == "__main__":
    main()
