"""From the text of a condition to its tree. Python's own parser reads it; nothing is ever executed."""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeAlias

from tensonde.errors import SyntaxProblem
from tensonde.watch import mistakes
from tensonde.watch.nodes import (
    TRUTHS,
    And,
    Arithmetic,
    Compare,
    Const,
    Field,
    Function,
    History,
    Inside,
    Named,
    Node,
    Not,
    Or,
    Seen,
    Spread,
    Truth,
)
from tensonde.watch.vocabulary import CONTEXT, FIELDS, FUNCTIONS, HISTORY, MAX_HISTORY, PLAIN

MAX_LENGTH = 2000
MAX_DEPTH = 40

Argument: TypeAlias = float | str
Build: TypeAlias = Callable[[list[Argument], dict[str, Argument]], Named]
Names: TypeAlias = Callable[[str], Build | None]
"""Gives for the name of a condition what builds it from its arguments; ValueError if they are wrong."""

_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%", ast.Pow: "**",
}  # fmt: skip
_GLUED = re.compile(r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)((?:and|or|not|in|is|if|else|for)\b)", re.I)
"""`1or`, which Python's parser takes, and warns about."""
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


def parse(text: str, names: Names, known: Iterable[str] = ()) -> Node:
    """The tree of `text`; raises SyntaxProblem. `known` are the condition names, for suggestions."""
    if len(text) > MAX_LENGTH:
        raise SyntaxProblem(f"a condition has at most {MAX_LENGTH} characters", text=text[:80] + "...", position=80)
    flat = "".join(" " if c in "\t\r\n\f" else c for c in text)
    lead = len(flat) - len(flat.lstrip(" "))
    if lead == len(flat):
        raise SyntaxProblem("the condition is empty", text=text, position=0, hint="such as: nan or inf")
    if glued := _GLUED.search(flat):
        raise SyntaxProblem(
            f"a number runs into {glued[2]!r}", text=text, position=glued.start(2), hint=f"write {glued[1]} {glued[2]}"
        )
    if "\\" in flat:
        raise SyntaxProblem("a backslash cannot stand here", text=text, position=flat.index("\\"))
    try:
        body = ast.parse(flat[lead:], mode="eval").body
    except SyntaxError as problem:
        raise mistakes.explain(flat, lead + max((problem.offset or 1) - 1, 0)) from None
    except (ValueError, RecursionError, MemoryError):
        raise SyntaxProblem("the condition cannot be read", text=flat, position=0) from None
    return _Reader(flat, lead, names, known).read(body, 0)


class _Reader:
    def __init__(self, text: str, lead: int, names: Names, known: Iterable[str]) -> None:
        self.text, self.lead, self.names, self.known = text, lead, names, known

    def fail(self, node: ast.AST, message: str, hint: str = "") -> NoReturn:
        column = getattr(node, "col_offset", 0)
        at = self.lead + len(self.text[self.lead :].encode()[:column].decode(errors="ignore"))
        raise SyntaxProblem(message, text=self.text, position=at, hint=hint)

    def read(self, node: ast.AST, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self.fail(node, f"the condition is nested more than {MAX_DEPTH} deep")
        match node:
            case ast.BoolOp():
                items = tuple(self.read(value, depth + 1) for value in node.values)
                return And(items) if isinstance(node.op, ast.And) else Or(items)
            case ast.UnaryOp(op=ast.Not()):
                return Not(self.read(node.operand, depth + 1))
            case ast.UnaryOp(op=ast.USub()):
                return Function("neg", (self.number(node.operand, depth + 1),))
            case ast.UnaryOp(op=ast.UAdd()):
                return self.number(node.operand, depth + 1)
            case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
                left, right = self.number(node.left, depth + 1), self.number(node.right, depth + 1)
                return Arithmetic(_ARITHMETIC[type(op)], left, right)
            case ast.Compare():
                return self.compare(node, depth)
            case ast.Constant(value=bool(value)):
                return Truth(value)
            case ast.Constant(value=int(value) | float(value)):
                try:
                    return Const(float(value))
                except OverflowError:
                    self.fail(node, "the number is too large")
            case ast.Name():
                return self.name(node)
            case ast.Call():
                return self.call(node, depth)
        return self.fail(node, *mistakes.unsupported(node))

    def number(self, node: ast.AST, depth: int) -> Node:
        tree = self.read(node, depth)
        if isinstance(tree, TRUTHS):
            self.fail(node, f"{tree} is true or false, and a number is needed here", "combine with and, or, not")
        return tree

    def compare(self, node: ast.Compare, depth: int) -> Node:
        operands = [self.number(operand, depth + 1) for operand in (node.left, *node.comparators)]
        for op in node.ops:
            if type(op) not in _COMPARE:
                self.fail(node, "`in` and `is` are not comparisons of numbers", "use < <= > >= == !=")
        signs = [_COMPARE[type(op)] for op in node.ops]
        links = tuple(Compare(sign, operands[i], operands[i + 1]) for i, sign in enumerate(signs))
        return links[0] if len(links) == 1 else And(links)

    def name(self, node: ast.Name) -> Node:
        if node.id in FIELDS:
            return Field(node.id)
        if node.id in FUNCTIONS:
            self.fail(node, f"{node.id} is a function", f"write {node.id}({mistakes.USAGE[node.id]})")
        build = self.names(node.id)
        if build is None:
            self.unknown(node, "field or condition", (*FIELDS, *self.known))
        return self.build(node, build, [], {})

    def unknown(self, node: ast.Name, what: str, choices: Iterable[str]) -> NoReturn:
        near = difflib.get_close_matches(node.id.lower(), list(choices), 1, 0.6)
        self.fail(
            node,
            f"there is no {what} {node.id!r}",
            f"did you mean {near[0]}?" if near else "see docs/watch-language.md",
        )

    def build(self, node: ast.AST, build: Build, given: list[Argument], named: dict[str, Argument]) -> Node:
        try:
            return build(given, named)
        except ValueError as problem:
            self.fail(node, str(problem))

    def call(self, node: ast.Call, depth: int) -> Node:
        if not isinstance(node.func, ast.Name):
            self.fail(node, "only functions and conditions can be called")
        name = node.func.id
        if name in FUNCTIONS:
            if node.keywords:
                self.fail(
                    node.keywords[0],
                    f"{name} takes no named arguments",
                    f"write {name}({mistakes.USAGE[name]})",
                )
            return self.function(node, name, depth)
        build = self.names(name)
        if build is None:
            if name in FIELDS:
                self.fail(node, f"{name} is a field, not a function", f"write {name} without parentheses")
            self.unknown(node.func, "function or condition", (*FUNCTIONS, *self.known))
        for keyword in node.keywords:
            if keyword.arg is None:
                self.fail(keyword, "** is not possible here")
        given = [self.argument(value, depth) for value in node.args]
        named = {str(keyword.arg): self.argument(keyword.value, depth) for keyword in node.keywords}
        return self.build(node, build, given, named)

    def argument(self, node: ast.AST, depth: int) -> Argument:
        if isinstance(node, ast.Name) and node.id not in FIELDS:
            return node.id
        return self.constant(node, depth)

    def constant(self, node: ast.AST, depth: int) -> float:
        match self.number(node, depth + 1):
            case Const(value):
                return value
            case Function("neg", (Const(value),)):
                return -value
        return self.fail(node, "a plain number is needed here")

    def function(self, node: ast.Call, name: str, depth: int) -> Node:
        usage = f"write {name}({mistakes.USAGE[name]})"
        if name in PLAIN:
            arguments = tuple(self.number(argument, depth + 1) for argument in node.args)
            if len(arguments) < 2 if name in ("min", "max") else len(arguments) != 1:
                self.fail(node, f"{name} got {len(arguments)} arguments", usage)
            return Function(name, arguments)
        if name == "seen":
            return Seen() if not node.args else self.fail(node, "seen takes no arguments", usage)
        if name == "inside":
            if len(node.args) != 2:
                self.fail(node, "inside takes two numbers", usage)
            low, high = (self.constant(argument, depth) for argument in node.args)
            return Inside(low, high) if low <= high else self.fail(node, "the range of inside is empty", usage)
        if name == "spread":
            field = node.args[0] if len(node.args) == 1 else self.fail(node, "spread takes one field", usage)
            if not isinstance(field, ast.Name) or field.id not in FIELDS or field.id in CONTEXT:
                self.fail(field, "the argument of spread is a field of the digest", usage)
            return Spread(field.id)
        assert name in HISTORY
        if len(node.args) not in ((1, 2) if name == "prev" else (2,)):
            self.fail(node, f"{name} got {len(node.args)} arguments", usage)
        field = node.args[0]
        if not isinstance(field, ast.Name) or field.id not in FIELDS:
            self.fail(field, f"the first argument of {name} is a field", usage)
        if field.id in CONTEXT and field.id != "loss":
            self.fail(field, f"no history of {field.id} is kept", "use a field of the digest, or loss")
        length = 1.0 if len(node.args) == 1 else self.constant(node.args[1], depth)
        if not math.isfinite(length) or length != int(length) or not 1 <= length <= MAX_HISTORY:
            self.fail(node.args[1], f"the length of a history is a whole number from 1 to {MAX_HISTORY}")
        return History(name, field.id, int(length))
