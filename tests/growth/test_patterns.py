"""Every regular expression of the source reads a text in time proportional to its length, or a bounded text."""

import ast
import importlib
import random
import re
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import regex

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"mvindex": ROOT / "mvindex", "mvindex_connectors": ROOT / "connectors/mvindex_connectors",
           "mvindex_train": ROOT / "train/mvindex_train"}  # fmt: skip
# What a pattern of nested or neighbouring repeats is slow on: a run, what stands before it, and what ends it.
RUN_CHARS, STRINGS_PER_PATTERN = 10_000, 250
# A pattern that reads each character once takes at most a millisecond; one that takes the square, a fourth of a second.
MOST_CPU_S = 0.015

LIBRARIES = {"re": re, "regex": regex}
# Pattern -> why what it reads is bounded.
BOUNDED: dict[str, str] = {
    r"(\d+)\.(\d+)": "the version that a Milvus server gives",
}
# File -> why it has no constant pattern.
READ_ELSEWHERE = {
    "mvindex/corpus/text/sentences.py": "one letter",
    "mvindex/corpus/reader.py": "a path, compared with the beginning of a message",
    "mvindex/cli/options.py": "names of options, looked for in a message",
}


def patterns_of(value):
    """Yield the compiled patterns in a value of a module, and in its containers."""
    if isinstance(value, re.Pattern | regex.Pattern):
        yield value
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from patterns_of(each)
    elif isinstance(value, dict):
        yield from patterns_of(list(value.values()))


def calls_of(tree):
    """Yield the calls of re and regex that take a pattern."""
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if is_call and isinstance(node.func.value, ast.Name) and node.func.value.id in LIBRARIES:
            if node.func.attr in ("compile", "match", "search", "fullmatch", "sub", "split", "findall", "finditer"):
                yield node


class Named(NamedTuple):
    """A pattern, the file that has it, and whether it is tried at one place of a text only."""

    path: str
    pattern: re.Pattern
    is_anchored: bool


def uses_of(tree, name):
    """Return the methods of a variable that a file calls or passes on; "" for another use."""
    methods, reads = [], 0
    for node in ast.walk(tree):
        reads += isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name:
            methods.append(node.attr)
    return set(methods) | ({""} if reads > len(methods) else set())


def all_patterns():
    """Return the patterns of the source; AssertionError for one that cannot be read."""
    found = {}
    for package, folder in SOURCES.items():
        for path in sorted(folder.rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            calls = list(calls_of(tree))
            if not calls:
                continue
            parts = path.relative_to(folder).with_suffix("").parts
            module = importlib.import_module(".".join((package, *parts)).removesuffix(".__init__"))
            place = str(path.relative_to(ROOT))
            own = [
                Named(place, pattern, uses_of(tree, name) <= {"match", "fullmatch"})
                for name, value in vars(module).items()
                for pattern in patterns_of(value)
            ]
            for call in calls:
                if isinstance(call.args[0], ast.Constant) and call.func.attr != "compile":
                    pattern = LIBRARIES[call.func.value.id].compile(call.args[0].value)
                    own.append(Named(place, pattern, call.func.attr in ("match", "fullmatch")))
            assert own or place in READ_ELSEWHERE, f"{place}:{calls[0].lineno}: expected a constant pattern"
            found |= {(each.path, each.pattern.pattern): each for each in own}
    return list(found.values())


def letters_of(pattern):
    """Return characters that the pattern tells from others, and one that it does not know."""
    letters = set(re.sub(r"\\[a-zA-Z]", "", pattern)) if isinstance(pattern, str) else set(pattern.decode("latin-1"))
    return sorted(letters - set("()[]{}?*+|^$.") | set("[](){}*"))[:24] + list(" \n\ta0A-.") + ["é", "\x01"]


def slowest(pattern, is_anchored, rng):
    """Return the most CPU seconds that the pattern takes for one of some hostile texts, and the text."""
    letters, worst = letters_of(pattern.pattern), (0.0, "")
    for _ in range(STRINGS_PER_PATTERN):
        head = "".join(rng.choices(letters, k=rng.randrange(4)))
        unit = "".join(rng.choices(letters, k=rng.choice((1, 1, 1, 2, 3))))
        tail = "".join(rng.choices(letters, k=rng.randrange(3)))
        text = head + unit * (RUN_CHARS // len(unit)) + tail
        text = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
        began = time.process_time()
        if is_anchored:
            _ = pattern.match(text), pattern.fullmatch(text)
        else:
            _ = sum(1 for _ in pattern.finditer(text))
        took = time.process_time() - began
        if took > worst[0]:
            worst = took, f"{head!r} + {unit!r} * n + {tail!r}"
        if took > MOST_CPU_S:
            break
    return worst


@pytest.mark.parametrize("slow", [r"\s*\n\s*", r"#+[ \t]+(.*?)\s*\Z", r"\|?[ \t]*-+[ \t]*\s*\Z", r"\[[^\]]*\]\("])
def test_a_pattern_that_takes_the_square_is_found(slow):
    assert slowest(re.compile(slow), False, random.Random(0))[0] > MOST_CPU_S


@pytest.mark.full
def test_no_pattern_takes_more_than_a_time_in_proportion_to_the_text():
    slow = []
    for path, pattern, is_anchored in all_patterns():
        if pattern.pattern in BOUNDED:
            continue
        took, worst = slowest(pattern, is_anchored, random.Random(0))
        if took > MOST_CPU_S:
            slow.append(f"{path}: {pattern.pattern!r}: {took:.2f} s for {worst}")
    assert not slow, "\n".join(slow)


@pytest.mark.full
def test_a_bound_is_of_a_pattern_that_exists():
    assert not set(BOUNDED) - {each.pattern.pattern for each in all_patterns()}
