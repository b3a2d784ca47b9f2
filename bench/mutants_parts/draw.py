"""The changes that a mutant can be, found in the syntax tree of a file; texts, messages and types stay as they are."""

import ast
import copy
from dataclasses import dataclass

_BORDER = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITE = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_WORDS = {ast.And: ast.Or, ast.Or: ast.And}


@dataclass(frozen=True)
class Mutant:
    """A change of one expression: where it stands, and the lines of its statement, by which its tests are found."""

    file: str
    line: int
    column: int
    lines: range
    begin: int
    end: int
    before: str
    after: str

    @property
    def name(self):
        return f"{self.file}:{self.line}:{self.column}: {self.before} -> {self.after}"

    def apply(self, source):
        return source[: self.begin] + self.after.encode() + source[self.end :]


def mutants_of(file, source):
    """Yield the mutants of a file, whose content is given in bytes."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for statement in _statements(ast.parse(source).body):
        for node, is_condition in _nodes(statement):
            if not hasattr(node, "lineno"):
                continue
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            before = " ".join(source[begin:end].decode().split())
            for changed in _changes(node, is_condition, isinstance(statement, ast.While)):
                after = ast.unparse(changed)
                after = after if isinstance(node, ast.stmt) else f"({after})"
                yield Mutant(file, node.lineno, node.col_offset, _lines(statement), begin, end, before, after)


def _lines(statement):
    """Return the lines of a statement without its blocks; of a function with its body, which shows its defaults."""
    blocks = getattr(statement, "body", None)
    if blocks is None or isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return range(statement.lineno, statement.end_lineno + 1)
    return range(statement.lineno, max(blocks[0].lineno, statement.lineno + 1))


def _statements(block):
    """Yield the statements that can change: none that only raises, logs, asserts, imports or is for type checkers."""
    for statement in block:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        is_message = isinstance(statement, ast.Expr) and ast.unparse(statement).startswith(("logger.", "warnings."))
        if not is_message and not isinstance(statement, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
            yield statement
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, name, []))
        for inner in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
            yield from _statements(inner.body)


def _nodes(node, is_condition=False):
    """Yield a statement and its expressions, and whether they are conditions; no types, no statements inside."""
    yield node, is_condition
    for name, value in ast.iter_fields(node):
        # Positions inside f-strings are not those of the file.
        if name in ("annotation", "returns", "decorator_list", "bases") or isinstance(node, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr | ast.arguments | ast.arg | ast.keyword | ast.comprehension | ast.withitem):
                yield from _nodes(child, name in ("test", "ifs"))


def _changes(node, is_condition, is_loop):
    if is_condition:
        # A loop without an end would only run out of time.
        yield from map(ast.Constant, [False] if is_loop else [True, False])
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for table in (_BORDER, _OPPOSITE):
                if type(operator) in table:
                    yield _with(node, ops=[*node.ops[:place], table[type(operator)](), *node.ops[place + 1 :]])
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _SIGNS:
        yield _with(node, op=_SIGNS[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=_WORDS[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield ast.Return(ast.Constant(None))


def _with(node, **changed):
    made = copy.copy(node)
    for name, value in changed.items():
        setattr(made, name, value)
    return made
