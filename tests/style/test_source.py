"""The source keeps to the rules of CONTRIBUTING.md that no linter checks."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "mvindex", ROOT / "connectors/mvindex_connectors", ROOT / "train/mvindex_train")
FORBIDDEN = re.compile(r"(Nothing|What|Those|Of|True when)\b")
# Only files with such a string are parsed: there are a thousand.
FORBIDDEN_SOURCE = re.compile(rf"[\"']\s*{FORBIDDEN.pattern}")
# The public methods of named tuples; and attributes of other libraries that are named like some of ours.
PUBLIC = {"_replace", "_make", "_asdict", "_fields"}
FOREIGN = {("writes.py", "_stub")}  # pymilvus' handler
INDEXES = {"Index", "IndexClient", "AsyncIndexClient", "IndexProtocol"}


def files():
    return sorted(
        path for package in PACKAGES for path in package.rglob("*.py") if (package / "v1") not in path.parents
    )


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def documented(path):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [(node, ast.get_docstring(node)) for node in ast.walk(tree(path)) if isinstance(node, kinds)]


def own_names(path):
    """The private names that a module itself defines, as functions, classes, attributes or fields."""
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


@cache
def all_private_names():
    """The private names of the three packages; those of other libraries are theirs to keep."""
    return {name for path in files() for name in own_names(path) if re.match(r"_[a-z]", name)} - PUBLIC


def private_reaches(path):
    """Private attributes of ours that a module reads of something that it does not define."""
    others = all_private_names() - own_names(path)
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Attribute) or node.attr not in others:
            continue
        is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if not is_own and (path.name, node.attr) not in FOREIGN:
            yield node


def type_checks(path):
    """Questions for the class of an index, which its capabilities answer."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            if INDEXES & {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}:
                yield node
            if INDEXES & {name.attr for name in ast.walk(node.args[1]) if isinstance(name, ast.Attribute)}:
                yield node
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Call):
            if isinstance(node.left.func, ast.Name) and node.left.func.id == "type" and "Index" in ast.unparse(node):
                yield node


def test_docstrings_say_what_a_function_does():
    others = [path for name in ("tests", "bench", "examples", ".ci") for path in sorted((ROOT / name).rglob("*.py"))]
    wrong = [
        f"{path}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}"
        for path in (*files(), *others)
        if FORBIDDEN_SOURCE.search(path.read_text(encoding="utf-8"))
        for node, text in documented(path)
        if text and FORBIDDEN.match(text)
    ]
    assert wrong == []


def test_nobody_asks_an_index_for_its_class():
    assert [f"{path}:{node.lineno}: {ast.unparse(node)}" for path in files() for node in type_checks(path)] == []


def test_no_module_reaches_into_another():
    assert [f"{path}:{node.lineno}: {ast.unparse(node)}" for path in files() for node in private_reaches(path)] == []


def twice_assigned(path):
    """The names that a module assigns more than once at its top level, outside if and try."""
    counts = Counter(
        name.id
        for node in tree(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    )
    return [name for name, count in counts.items() if count > 1]


def test_no_module_assigns_a_constant_twice():
    assert [f"{path}: {name}" for path in files() for name in twice_assigned(path)] == []


def test_the_rules_find_what_they_forbid(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(
        'def f(index):\n    """Nothing; ..."""\n'
        "    return type(index) is Index, isinstance(index, Index), index._sto" + "re\n"
        "_A, _B = 1, 2\n_B = 3\nif _A:\n    _A = 4\n"
    )
    assert [FORBIDDEN.match(text) is not None for _, text in documented(path) if text] == [True]
    assert len(list(type_checks(path))) == 2
    assert twice_assigned(path) == ["_B"]
    assert [node.attr for node in private_reaches(path)] == ["_store"]
