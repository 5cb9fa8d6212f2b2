"""Simple mutations of Python statements: which exist, where in the syntax tree, and their source text.

A place is a statement, the part of it that a mutation rewrites (all of a simple statement, the header of a compound
one), and the index of the mutated node in a walk through that part. Docstrings, annotations, imports and texts for
people (anything but names, such as keys of a dictionary) are not mutated.
"""

import ast
import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

SWAPPED_OPERATORS: dict[type, type] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.MatMult: ast.Mult, ast.LShift: ast.RShift},
    **{ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr},
}
SWAPPED_COMPARISONS: dict[type, tuple[type, ...]] = {
    **{ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt)},
    **{ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,)},
    **{ast.In: (ast.NotIn,), ast.NotIn: (ast.In,)},
}
NAME_LIKE = re.compile(r"[\w./:*-]+")
_COMPOUND = {
    **{ast.If: ("test",), ast.While: ("test",), ast.For: ("iter",), ast.With: ("items",), ast.Match: ("subject",)},
    **{ast.FunctionDef: ("args", "decorator_list"), ast.ClassDef: ("decorator_list", "keywords")},
}


class Mutation(NamedTuple):
    """One change of one statement.

    Attributes:
        function: the qualified name of the function or class around the statement; ``""`` is the module.
        line: the statement's line.
        part: index of the rewritten part among :func:`parts` of the statement.
        node: index of the mutated node in a breadth-first walk through the part.
        kind: the kind of mutation, such as ``"comparison"``.
        choice: index among the replacements of that kind for that node.
    """

    function: str
    line: int
    part: int
    node: int
    kind: str
    choice: int

    def name(self, module: str) -> str:
        """Return the mutation's name: module, function, kind, line and place in the statement."""
        return f"{module}:{self.function}:{self.kind} {self.line}:{self.part}.{self.node}.{self.choice}"


def statements(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Yield every statement that runs, in source order, with the function or class around it."""

    def walk(body: list[ast.stmt], around: str, needed: set[str]) -> Iterator[tuple[str, ast.stmt]]:
        for index, statement in enumerate(body):
            docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if (docstring and (index == 0 or statement.value.value is ...)) or _for_type_checkers(statement):
                continue
            if isinstance(statement, ast.Assign):
                names = {node.id for node in ast.walk(statement) if _is_assigned(node)}
                statement.needed = not needed.isdisjoint(names)
            yield around, statement
            named = isinstance(statement, (ast.FunctionDef, ast.ClassDef))
            inner = f"{around}.{statement.name}".lstrip(".") if named else around
            below = _names_of_inner_functions(statement) if isinstance(statement, ast.FunctionDef) else needed
            for block in ("body", "handlers", "orelse", "finalbody", "cases"):
                for child in getattr(statement, block, []):
                    yield from walk([child] if isinstance(child, ast.stmt) else child.body, inner, below)

    def with_docstrings_gone(node: ast.AST) -> None:
        for child in ast.walk(node):
            if isinstance(child, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(child) is not None:
                child.body[0] = ast.copy_location(ast.Expr(ast.Constant(...)), child.body[0])

    with_docstrings_gone(tree)
    yield from walk(tree.body, "", set())


def parts(statement: ast.stmt) -> list[ast.AST]:
    """Return the parts of a statement that a mutation may rewrite, each with its own location in the source."""
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Pass, ast.Global, ast.Nonlocal, ast.Try)):
        return []
    if isinstance(statement, ast.AnnAssign):
        return [] if statement.value is None else [statement.value]
    if type(statement) not in _COMPOUND:
        return [statement]
    found: list[ast.AST] = []
    for field in _COMPOUND[type(statement)]:
        value = getattr(statement, field)
        if isinstance(value, ast.arguments):
            found += [default for default in (*value.defaults, *value.kw_defaults) if default is not None]
        elif field == "items":
            found += [item.context_expr for item in value]
        elif field == "keywords":
            found += [keyword.value for keyword in value]
        else:
            found += value if isinstance(value, list) else [value]
    return found


def mutations(function: str, statement: ast.stmt) -> list[Mutation]:
    """Return every mutation of one statement."""
    found = []
    for index, part in enumerate(parts(statement)):
        for number, node in enumerate(_nodes(part)):
            condition = node is part and isinstance(statement, (ast.If, ast.While))
            for kind, replacements in _replacements(node, condition).items():
                found += [
                    Mutation(function, statement.lineno, index, number, kind, choice)
                    for choice in range(len(replacements))
                ]
    return found


def mutated(source: str, mutation: Mutation) -> str:
    """Return the mutated source.

    Raises:
        LookupError: if the source does not have the mutation's place.
    """
    part, node, new = _change(source, mutation)
    changed = new if node is part else _Replace(node, new).visit(part)
    text = ast.unparse(ast.fix_missing_locations(changed))
    return _spliced(source, part, text if isinstance(part, ast.stmt) else f"({text})")


def described(source: str, mutation: Mutation) -> str:
    """Return the original and the replacement, in one line."""
    _, node, new = _change(source, mutation)
    return " -> ".join(" ".join(ast.unparse(ast.fix_missing_locations(one)).split()) for one in (node, new))


def _change(source: str, mutation: Mutation) -> tuple[ast.AST, ast.AST, ast.AST]:
    """Return the part of a statement that a mutation rewrites, the node in it, and the node's replacement."""
    for _, statement in statements(ast.parse(source)):
        if statement.lineno == mutation.line and mutation in mutations(mutation.function, statement):
            part = parts(statement)[mutation.part]
            node = _nodes(part)[mutation.node]
            condition = node is part and isinstance(statement, (ast.If, ast.While))
            return part, node, _replacements(node, condition)[mutation.kind][mutation.choice]()
    raise LookupError(f"no {mutation.kind} at line {mutation.line}")


def lines(source: str, mutation: Mutation) -> tuple[range, bool]:
    """Return the lines whose execution runs the mutated code, and whether it runs when the module is imported.

    For a default value these are the lines of its function; for statements of a class or module there are none.
    """
    within = {"": False}  # whether a name is a function's, or inside one
    for around, statement in statements(ast.parse(source)):
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            name = f"{around}.{statement.name}".lstrip(".")
            within[name] = within[around] or isinstance(statement, ast.FunctionDef)
        if statement.lineno == mutation.line and mutation in mutations(mutation.function, statement):
            whole = isinstance(statement, (ast.FunctionDef, ast.ClassDef))
            part = statement if whole else parts(statement)[mutation.part]
            imported = not within[mutation.function] and not isinstance(statement, ast.FunctionDef)
            return range(part.lineno, part.end_lineno + 1), imported
    raise LookupError(f"no {mutation.kind} at line {mutation.line}")


def all_statements(folder: Path, package: str = "ddpg") -> list[tuple[str, list[Mutation]]]:
    """Return, for each statement below ``folder`` that can be mutated, its file and its mutations, sorted by file."""
    found = []
    for path in sorted((folder / package).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function, statement in statements(tree):
            if possible := mutations(function, statement):
                found.append((str(path.relative_to(folder)), possible))
    return found


def _names_of_inner_functions(function: ast.FunctionDef) -> set[str]:
    """Return the names that inner functions of ``function`` declare nonlocal, except those that it declares so itself.

    Without an assignment to them in ``function`` the module does not compile.
    """
    own = {name for statement in function.body if isinstance(statement, ast.Nonlocal) for name in statement.names}
    return {name for node in ast.walk(function) if isinstance(node, ast.Nonlocal) for name in node.names} - own


def _is_assigned(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _for_type_checkers(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)


def _nodes(part: ast.AST) -> list[ast.AST]:
    """Return the nodes that may be mutated: not those in annotations, nor texts and formats of f-strings."""
    found, queue = [], [part]
    while queue:
        node = queue.pop(0)
        found.append(node)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "format_spec"):
                continue
            children = value if isinstance(value, list) else [value]
            if isinstance(node, ast.JoinedStr):
                children = [child for child in children if not isinstance(child, ast.Constant)]
            queue += [child for child in children if isinstance(child, ast.AST)]
    return found


def _replacements(node: ast.AST, condition: bool) -> dict[str, list[Callable[[], ast.AST]]]:
    """Return, by kind, functions that return replacements of ``node``."""
    found: dict[str, list[Callable[[], ast.AST]]] = {}
    droppable = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Raise, ast.Assert, ast.Continue, ast.Break)
    if isinstance(node, droppable) and not getattr(node, "needed", False):
        found["drop"] = [ast.Pass]
    if isinstance(node, ast.Return) and not (node.value is None or _is_none(node.value)):
        found["return"] = [lambda: ast.Return(None)]
    if condition:
        found["condition"] = [lambda: ast.UnaryOp(ast.Not(), node)]
    if isinstance(node, ast.IfExp):
        found["condition"] = [lambda: ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)]
    if isinstance(node, ast.comprehension) and node.ifs:
        negated = [ast.UnaryOp(ast.Not(), node.ifs[0]), *node.ifs[1:]]
        found["condition"] = [lambda: ast.comprehension(node.target, node.iter, negated, node.is_async)]
    if isinstance(node, ast.UnaryOp):
        found["sign" if isinstance(node.op, ast.USub) else "not"] = [lambda: node.operand]
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        operator = SWAPPED_OPERATORS[type(node.op)]()
        found["operator"] = [lambda: _with(node, op=operator)]
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        found["and/or"] = [lambda: _with(node, op=other)]
    if isinstance(node, ast.Compare):
        found["comparison"] = [
            lambda place=place, new=new: _with(node, ops=[*node.ops[:place], new(), *node.ops[place + 1 :]])
            for place, old in enumerate(node.ops)
            for new in SWAPPED_COMPARISONS[type(old)]
        ]
    if isinstance(node, ast.Call):
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        found["arguments"] = [
            lambda place=place: _with(node, args=_swapped(node.args, place))
            for place in range(0 if starred else len(node.args) - 1)
        ]
    if isinstance(node, ast.Constant):
        found["constant"] = [lambda value=value: ast.Constant(value) for value in _other_values(node.value)]
    return found


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _other_values(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [value * 2 or 1.0, value / 2 or 1.0] if value else [1.0]
    return [value + "_"] if isinstance(value, str) and NAME_LIKE.fullmatch(value) else []


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _swapped(values: list, place: int) -> list:
    return [*values[:place], values[place + 1], values[place], *values[place + 2 :]]


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST):
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else super().visit(node)


def _spliced(source: str, part: ast.AST, text: str) -> str:
    """Return ``source`` with ``part`` replaced by ``text``; columns count bytes."""
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    before = b"".join(lines[: part.lineno - 1]) + lines[part.lineno - 1][: part.col_offset]
    after = lines[part.end_lineno - 1][part.end_col_offset :] + b"".join(lines[part.end_lineno :])
    indent = b"\n" + b" " * part.col_offset
    return (before + text.encode().replace(b"\n", indent) + after).decode()
